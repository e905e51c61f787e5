"""Measures body plans on photos whose parts are known, over seeds.

python -m examples.birds birds40.npz --cache CACHE --to results/birds

trains `tfcaps.models.body_plan_capsnet` for each seed on the labels of classes
alone, measures it on the test photos, and writes seeds.jsonl and table.md.
Keypoints and boxes are read for measuring only. Features of photos are computed
once, and networks trained once, into the cache. What seeds.jsonl has is not
measured again: what was stopped goes on from there, and pixels can come later.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cli import Parser, check_installed, progress, run_command, start_quietly
from examples.seeds import PAGES, Row
from markdown_table import table, write_tables

Array = NDArray[Any]

# Ends of an animal, which tell its facing; see `part_names`.
_ENDS = ("crown", "tail")
# Deviation of the noise, where it is cut off, and that of ImageNet's pixels.
_NOISE = 0.2, 0.25, 0.226
_FILLS = ("blur", "grey", "other")


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="examples.birds", description=__doc__)
    add = parser.add_argument
    add("photos", type=Path, metavar="PHOTOS.npz")
    add("--cache", type=Path, required=True, metavar="FOLDER")
    add("--to", type=Path, required=True, metavar="FOLDER")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    add("--types", type=int, default=8)
    add("--window", type=float, default=0.3, help="its side, of an image's")
    add("--backbone", default="efficientnet_lite0")
    add("--noisy", type=int, default=100, help="photos of the stability")
    add("--pixels", type=int, default=20, help="photos that are changed")
    return parser


def run(options: argparse.Namespace) -> None:
    """Trains and measures a network for each seed, and writes the table."""
    check_installed(data="PIL")
    start_quietly()
    from training.datasets import keypoint_photos

    data = keypoint_photos.load(options.photos)
    options.to.mkdir(parents=True, exist_ok=True)
    path = options.to / "seeds.jsonl"
    path.touch()
    lines = path.read_text("utf-8").splitlines()
    rows = {row["seed"]: row for row in map(json.loads, lines)}
    for seed in options.seeds:
        row = rows.setdefault(seed, {"seed": seed})
        changed = row.get("pixels", {"samples": 0})["samples"]
        if "right" in row and changed >= options.pixels:
            print(f"{path} has seed {seed}", flush=True)
            continue
        model, maps = trained(options, data, row)
        if "right" not in row:
            row |= measured(options, data, model, maps)
        if not any("linear_deep" in each for each in rows.values()):
            row |= linear(data, maps, model)
        if changed < options.pixels:
            row["pixels"] = in_pixels(options, data, model, maps, seed)
        print(json.dumps(row), flush=True)
        done = [each for each in rows.values() if "right" in each]
        text = "".join(f"{json.dumps(each)}\n" for each in done)
        path.write_text(text, "utf-8")
        write_tables(options.to / "table.md", "\n\n".join(tables(done)))


def trained(options: argparse.Namespace, data: Any, row: Row) -> Any:
    """Returns the network of a row's seed, and the maps of photos.

    A network that is trained here adds its seconds to the row.
    """
    import keras

    from tfcaps import models
    from training import backbone as backbones
    from training.images import Images

    # Features and networks of one backbone are none of another.
    folder = options.cache / f"{Path(options.backbone).stem}-{options.window}"
    train, test = (
        data.images[rows] for rows in (data.is_train, ~data.is_train)
    )
    draw = np.random.default_rng(0)
    few = draw.permutation(len(test))[: options.noisy]
    photos = {"train": train, "test": test, "noisy": noisy(test[few], draw)}
    shape, classes = data.images.shape[1:], len(data.class_names)
    backbone = backbones.load(options.backbone, None, shape)
    model = models.body_plan_capsnet(
        shape, classes, backbone, options.types, window=options.window
    )
    maps = {
        name: model.maps(Images(images), folder / name, verbose=progress() % 2)
        for name, images in photos.items()
    }
    path = folder / f"{options.types}-types-{row['seed']}.keras"
    if path.exists():
        return keras.saving.load_model(path), maps
    start, labels = time.perf_counter(), data.labels[data.is_train]
    cache = folder / "train"
    model.fit(Images(train), labels, seed=row["seed"], cache=cache)
    row["seconds"] = time.perf_counter() - start
    model.save(path)
    return model, maps


def measured(
    options: argparse.Namespace, data: Any, model: Any, maps: Any
) -> Row:
    """Returns what is measured of a network, by its maps."""
    from tfcaps import graphs, rem

    train, test = np.flatnonzero(data.is_train), np.flatnonzero(~data.is_train)
    few = np.random.default_rng(0).permutation(len(test))[: options.noisy]
    _, head = graphs.split(model, model.get_layer("backbone"))
    trees = {
        name: rem.trees(head, m["local"], couplings=False, batch_size=64)
        for name, m in maps.items()
    }
    unseen = trees["test"]
    known = (trees["train"], data.points[train], data.boxes[train])
    asked = data.points[test], data.boxes[test]
    parts = rem.keypoints(unseen, *asked, training=known).to_dict()
    del parts["table"]
    again = (each[few] for each in asked)
    stable = rem.keypoints(unseen[few], *again, noisy=trees["noisy"])
    row: Row = {**parts, "stability": stable.stability, **model.report}
    # Types that are places in a photo tell as much of another one's parts.
    others = np.roll(np.arange(len(test)), len(test) // 2)
    elsewhere = rem.keypoints(unseen[others], asked[0])
    row["information_elsewhere"] = elsewhere.information
    row["right"] = float(np.mean(unseen.predicted == data.labels[test]))
    row["leaves"] = float(unseen.leaves.mean())
    if set(_ENDS) <= set(data.part_names):
        ends = [data.part_names.index(name) for name in _ENDS]
        way = np.subtract(*(asked[0][:, k, 1] for k in ends))
        shown = np.isfinite(way) & (way != 0)
        poses = rem.capsule_outputs(head).predict(
            maps["test"]["local"], batch_size=64, verbose=0
        )["poses"]
        share = np.mean(np.sign(way[shown]) == poses[shown, 0, 3])
        # A plan may be drawn either way.
        row["facing"] = float(max(share, 1 - share))
    return row


def linear(data: Any, maps: Any, model: Any) -> Row:
    """Returns the accuracy of linear heads, which no seed changes.

    They are on the deep map of whole photos, and on those of windows.
    """
    from tfcaps.parts import body_plan

    train, test = data.labels[data.is_train], data.labels[~data.is_train]
    row, classes = {}, len(data.class_names)
    for name in ("deep", "local"):
        known, asked = (maps[part][name] for part in ("train", "test"))
        if name == "local":
            coarse = model.get_layer("part_caps").coarse
            known, asked = known[..., :coarse], asked[..., :coarse]
        row[f"linear_{name}"] = body_plan.linear_accuracy(
            known, train, asked, test, classes
        )
    return row


def in_pixels(
    options: argparse.Namespace, data: Any, model: Any, maps: Any, seed: int
) -> Row:
    """Returns what happens if pixels of some test photos are replaced."""
    from tfcaps import graphs, rem
    from training.images import Images

    test = np.flatnonzero(~data.is_train)
    # Other photos for each seed.
    some = np.random.default_rng(seed).permutation(len(test))
    some = some[: options.pixels]
    _, head = graphs.split(model, model.get_layer("backbone"))
    return rem.pixel_faithfulness(
        model,
        Images(data.images[test[some]])[:],
        trees=rem.trees(head, maps["test"]["local"][some], couplings=False),
        samples=len(some),
        ceiling=max(1, len(some) // 5),
        verbose=progress() % 2,
    ).to_dict()


def noisy(photos: Array, draw: np.random.Generator) -> Array:
    """Returns photos with the noise by which stability is asked."""
    deviation, most, pixels = _NOISE
    noise = draw.normal(0, deviation, photos.shape).clip(-most, most)
    return np.clip(photos / 255 + pixels * noise, 0, 1).astype("f4")


def tables(rows: list[Row]) -> tuple[str, ...]:
    """Returns means and deviations over seeds, and what pixels do."""
    pixels = [row["pixels"] for row in rows if "pixels" in row]
    lines: dict[str, list[Row]] = {"birds": [], "birds_pixels": []}
    for name, title in PAGES["birds"]["rows"].items():
        values = [row[name] for row in rows if row.get(name) is not None]
        if values:
            line = {"title": title, "seeds": len(values)}
            line |= {"mean": np.mean(values), "deviation": np.std(values)}
            lines["birds"].append(line)
    for name, title in PAGES["birds_pixels"]["rows"].items():
        for fill in _FILLS if pixels else ():
            values = [
                one[name][fill] if isinstance(one[name], dict) else one[name]
                for one in pixels
            ]
            mean = np.mean([x for x in values if x is not None] or np.nan)
            if fill == _FILLS[0]:
                lines["birds_pixels"].append({"title": title})
            lines["birds_pixels"][-1][fill] = mean
    return tuple(
        table(each, PAGES[name]["columns"])
        for name, each in lines.items()
        if each
    )


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), run))

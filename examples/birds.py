"""Measures body plans on photos whose parts are known, over seeds.

python -m examples.birds birds40.npz --cache CACHE --to results/birds

trains `tfcaps.models.body_plan_capsnet` for each seed on the labels of classes
alone, measures it on the test photos, and writes seeds.jsonl and table.md.
Keypoints and boxes are read for measuring only. Features of photos are computed
once, into the cache; seeds that seeds.jsonl has are not measured again: what
was stopped goes on from there.
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
    add("--backbone", default="efficientnet_lite0")
    add("--noisy", type=int, default=100, help="photos of the stability")
    add("--pixels", type=int, default=20, help="photos that are changed")
    add("--pixel-seeds", type=int, default=2, help="of how many seeds")
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
    for seed in options.seeds:
        lines = path.read_text("utf-8").splitlines()
        if seed in [json.loads(line)["seed"] for line in lines]:
            print(f"{path} has seed {seed}", flush=True)
        else:
            lines.append(json.dumps(measured(options, data, seed)))
            print(lines[-1], flush=True)
            path.write_text("".join(f"{x}\n" for x in lines), "utf-8")
        rows = [json.loads(line) for line in lines]
        write_tables(options.to / "table.md", "\n\n".join(tables(rows)))


def measured(options: argparse.Namespace, data: Any, seed: int) -> Row:
    """Trains a network, and returns what is measured of it."""
    from tfcaps import graphs, models, rem
    from tfcaps.parts import body_plan
    from training import backbone as backbones
    from training.images import Images

    train, test = np.flatnonzero(data.is_train), np.flatnonzero(~data.is_train)
    draw = np.random.default_rng(0)
    few = draw.permutation(len(test))[: options.noisy]
    photos = {"train": data.images[train], "test": data.images[test]}
    photos["noisy"] = noisy(photos["test"][few], draw)
    shape, classes = data.images.shape[1:], len(data.class_names)
    backbone = backbones.load(options.backbone, None, shape)
    model = models.body_plan_capsnet(shape, classes, backbone, options.types)
    maps = {
        name: model.maps(
            Images(images), options.cache / name, verbose=progress() % 2
        )
        for name, images in photos.items()
    }
    start, labels = time.perf_counter(), data.labels
    cache = options.cache / "train"
    model.fit(Images(photos["train"]), labels[train], seed=seed, cache=cache)
    row: Row = {"seed": seed, "seconds": time.perf_counter() - start}
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
    row |= {**parts, "stability": stable.stability, **model.report}
    row["right"] = float(np.mean(unseen.predicted == labels[test]))
    row["leaves"] = float(unseen.leaves.mean())
    for name in ("deep", "local"):
        row[f"linear_{name}"] = body_plan.linear_accuracy(
            maps["train"][name],
            labels[train],
            maps["test"][name],
            labels[test],
            classes,
        )
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
    if seed in options.seeds[: options.pixel_seeds] and options.pixels:
        some = few[: options.pixels]
        row["pixels"] = rem.pixel_faithfulness(
            model,
            Images(photos["test"][some])[:],
            trees=unseen[some],
            samples=len(some),
            ceiling=max(1, len(some) // 5),
            verbose=progress() % 2,
        ).to_dict()
    return row


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

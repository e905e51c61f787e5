"""Measures body plans on photos whose parts are known, over seeds.

python -m examples.birds birds40.npz --cache CACHE --to results/birds

trains `tfcaps.models.body_plan_capsnet` for each seed on the labels of classes
alone, measures it on the test photos, and writes seeds.jsonl and table.md.
Keypoints and boxes are read for measuring only. Features of photos are computed
once, into the cache; without one of `--pixels` photos nothing is replaced.
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
from markdown_table import table, write_tables

Array = NDArray[Any]

# Ends of an animal, which tell its facing; see `part_names`.
_ENDS = ("crown", "tail")
_STRENGTHS = (3.0, 10.0, 30.0, 100.0)
_NOISY = 0.2, 0.25  # deviation of the noise, and where it is cut off
_ROWS = (
    ("accuracy, %", "accuracy"),
    ("accuracy on the held-out part of the training photos, %", "val_accuracy"),
    ("linear head on the whole photo, %", "linear"),
    ("linear head on the mean of the windows, %", "linear_windows"),
    ("NMI at keypoints", "nmi"),
    ("ARI", "ari"),
    ("keypoints with a type, %", "covered"),
    ("error of keypoints from centres of types (Kp), %", "kp"),
    ("consistency, %", "consistency"),
    ("stability, %", "stability"),
    ("which way it faces, %", "facing"),
    ("error of a part's place by the plan, % of a side", "plan_error"),
    ("the same without a plan, %", "no_plan_error"),
    ("plans", "plans"),
    ("leaves of a tree", "leaves"),
    ("leaves in the box, %", "in_box"),
    ("places in the box, %", "box"),
    ("seconds of a run without features", "seconds"),
)
_PIXEL_ROWS = (
    ("local truth", "local_truth"),
    ("with another window", "local_truth_random"),
    ("prediction, rank correlation", "prediction"),
    ("prediction, answers", "prediction_answers"),
    ("completeness", "completeness"),
    ("random windows", "completeness_random"),
    ("change", "change"),
    ("random windows", "change_random"),
)
_FILLS = ("blur", "grey", "other")


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="examples.birds", description=__doc__)
    parser.add_argument("photos", type=Path, metavar="PHOTOS.npz")
    parser.add_argument("--cache", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--types", type=int, default=8)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument(
        "--pixels", type=int, default=30, help="photos that are changed"
    )
    return parser


def run(options: argparse.Namespace) -> None:
    """Trains and measures a network for each seed, and writes the table."""
    check_installed(data="PIL")
    start_quietly()
    from tfcaps import graphs, models, rem
    from training import backbone as backbones
    from training.datasets import keypoint_photos
    from training.images import Images

    data = keypoint_photos.load(options.photos)
    train, test = (np.flatnonzero(data.is_train == k) for k in (1, 0))
    shape = data.images.shape[1:]
    rows: list[dict[str, Any]] = []
    for seed in options.seeds:
        backbone = backbones.load(options.backbone, None, shape)
        model = models.body_plan_capsnet(
            shape, len(data.class_names), backbone, options.types
        )
        maps = {
            name: model.maps(
                Images(data.images[own]),
                options.cache / name,
                verbose=progress() % 2,
            )
            for name, own in (("train", train), ("test", test))
        }
        start = time.perf_counter()
        model.fit(
            Images(data.images[train]),
            data.labels[train],
            seed=seed,
            cache=options.cache / "train",
        )
        row: dict[str, Any] = {"seed": seed}
        row["seconds"] = time.perf_counter() - start
        _, head = graphs.split(model, model.get_layer("backbone"))
        trees = {
            name: rem.trees(head, m["local"], couplings=False, batch_size=64)
            for name, m in maps.items()
        }
        noisy = seen = None
        if seed == options.seeds[0] and options.pixels:
            draw = np.random.default_rng(0)
            chosen = draw.permutation(len(test))[: options.pixels]
            seen = Images(data.images[test[chosen]])[:]
            noise = np.clip(
                draw.normal(0, _NOISY[0], seen.shape), -_NOISY[1], _NOISY[1]
            )
            noisy = (
                chosen,
                rem.trees(
                    model, np.clip(seen + noise / 4.4, 0, 1).astype("f4")
                ),
            )
        row |= measures(model, data, (train, test), trees, noisy)
        if not rows:
            row["linear"] = linear(
                maps["train"]["deep"], maps["test"]["deep"], data
            )
            row["linear_windows"] = linear(
                maps["train"]["local"], maps["test"]["local"], data
            )
        if seen is not None:
            asked = rem.pixel_faithfulness(
                model,
                seen,
                samples=len(seen),
                ceiling=max(1, len(seen) // 5),
                verbose=progress() % 2,
            )
            row["pixels"] = asked.to_dict()
        print(json.dumps(row), flush=True)
        rows.append(row)
        options.to.mkdir(parents=True, exist_ok=True)
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (options.to / "seeds.jsonl").write_text(lines)
        write_tables(options.to / "table.md", "\n\n".join(tables(rows)))


def measures(
    model: Any, data: Any, split: Any, trees: Any, noisy: Any
) -> dict[str, Any]:
    """Returns what is measured of the trees of test photos."""
    from tfcaps import rem

    train, test = split
    found = trees["test"]
    points, boxes = data.points[test], data.boxes[test]
    told = rem.keypoints(
        found,
        points,
        boxes,
        training=(trees["train"], data.points[train], data.boxes[train]),
    )
    measured = {
        "accuracy": 100 * float(np.mean(found.predicted == data.labels[test])),
        "val_accuracy": 100 * model.report["val_accuracy"],
        "nmi": told.information,
        "ari": told.rand_index,
        "covered": 100 * told.covered,
        "kp": 100 * float(told.regression_error or 0),
        "consistency": 100 * float(told.consistency or 0),
        "plan_error": 100
        * model.report["plan_errors"][model.report["plans"] - 1],
        "no_plan_error": 100 * model.report["error_without_plan"],
        "plans": model.report["plans"],
        "leaves": float(found.leaves.mean()),
        "in_box": 100 * share_in_boxes(found, boxes, found.in_tree),
        "box": 100 * share_in_boxes(found, boxes, found.activations >= 0),
    }
    if noisy is not None:
        chosen, changed = noisy
        stable = rem.keypoints(
            found[chosen], points[chosen], boxes[chosen], noisy=changed
        )
        measured["stability"] = 100 * float(stable.stability or 0)
    ends = [data.part_names.index(name) for name in _ENDS]
    way = np.subtract(*(points[:, k, 1] for k in ends))
    known = np.isfinite(way) & (way != 0)
    share = np.mean(np.sign(way[known]) == facings(model, found)[known])
    # A plan may be drawn either way.
    measured["facing"] = 100 * float(max(share, 1 - share))
    return measured


def facings(model: Any, trees: Any) -> Array:
    """Returns 1 for photos of what faces as the plan, else -1."""
    layer = model.get_layer("class_caps")
    shape = (len(trees), -1, trees.num_types)
    active = trees.activations.reshape(shape)
    best = active.argmax(axis=1)
    places = trees.places.reshape(*active.shape, 2)
    stands = np.take_along_axis(places, best[:, None, :, None], axis=1)[:, 0]
    frame = layer.frame(stands.astype("f4"), active.max(axis=1))
    return np.asarray(frame.facing)


def share_in_boxes(trees: Any, boxes: Array, chosen: Array) -> float:
    """Returns the share of some children that stand in the box."""
    low, size = boxes[:, None, :2], boxes[:, None, 2:]
    inside = np.all(
        (trees.places >= low) & (trees.places <= low + size), axis=-1
    )
    return float(inside[chosen].mean())


def linear(train: Array, test: Array, data: Any) -> float:
    """Returns how many a linear head on the mean of maps has right."""
    from tfcaps.parts import body_plan

    x, asked = (
        np.stack([photo.mean((0, 1), dtype="f4") for photo in maps])[:, None]
        for maps in (train, test)
    )
    labels, truth = (data.labels[data.is_train == k] for k in (1, 0))
    one, classes = np.ones((len(x), 1)), len(data.class_names)
    held = np.random.default_rng(0).permutation(len(x)) < len(x) // 5

    def heads(own: Array, *strengths: float) -> list[Any]:
        return body_plan.evidence(
            x[own], one[own], labels[own], classes, strengths
        )

    def right(head: Any, seen: Array, known: Array) -> float:
        says = head(seen, np.ones((len(seen), 1))).sum(axis=1) + head.bias
        return float(np.mean(says.argmax(axis=-1) == known))

    tried = [
        right(head, x[held], labels[held]) for head in heads(~held, *_STRENGTHS)
    ]
    best = _STRENGTHS[int(np.argmax(tried))]
    (head,) = heads(np.ones(len(x), bool), best)
    return 100 * right(head, asked, truth)


def tables(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    """Returns means and deviations over seeds, and what pixels do."""
    lines = []
    for title, name in _ROWS:
        values = [row[name] for row in rows if name in row]
        if values:
            lines.append(
                {
                    "title": title,
                    "mean": float(np.mean(values)),
                    "deviation": float(np.std(values)),
                    "seeds": len(values),
                }
            )
    columns = (
        ("test photos", "{title}"),
        ("mean", "{mean:.3f}"),
        ("deviation", "{deviation:.3f}"),
        ("seeds", "{seeds}"),
    )
    written = [table(lines, columns)]
    for asked in (row["pixels"] for row in rows if "pixels" in row):
        more = [
            {"title": title} | {fill: asked[name][fill] for fill in _FILLS}
            for title, name in _PIXEL_ROWS
        ]
        for name in ("completeness_best", "change_best"):
            title = f"best windows found, {name.split('_')[0]}"
            more.append({"title": title, "grey": asked[name]})
        for name in ("area", "window", "leaves", "samples"):
            more.append({"title": name, "grey": asked[name]})
        blank = dict.fromkeys(_FILLS, float("nan"))
        written.append(
            table(
                [blank | line for line in more],
                (
                    ("replaced by", "{title}"),
                    *((fill, f"{{{fill}:.3f}}") for fill in _FILLS),
                ),
            )
        )
    return tuple(written)


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), run))

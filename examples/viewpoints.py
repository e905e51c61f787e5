"""Measures networks of parts on turned and resized figures.

python -m examples.viewpoints runs/one/model.keras runs/two/model.keras

They were trained on upright figures. Each is measured alone and as
`tfcaps.models.with_viewpoints` makes it, on figures of its own, for the
table of results/named_parts/viewpoints.md, whose words are written by hand.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from cli import Parser, UserError, at_least_one, run_command, start_quietly
from examples import seeds
from examples.letters import lines
from markdown_table import table, write_tables

# Degrees against the clock, and size.
_POSES = (
    *((0, 1.0), (30, 1.0), (45, 1.0), (90, 1.0), (137, 1.0)),
    *((0, 0.7), (0, 0.8), (0, 1.2), (0, 1.4), (40, 0.8), (200, 1.25)),
)
_SEED = 900
_TURNS = 7
_COLUMNS = (
    ("degrees", "{angle}"),
    ("size", "{size}"),
    ("networks", "{networks}"),
    ("one view, right, %", "{upright:.1f}"),
    ("any viewpoint, right, %", "{right:.1f}"),
    ("worst network, %", "{worst:.1f}"),
    ("turned back by truth, %", "{oracle:.1f}"),
    ("off by degrees, median", "{off:.1f}"),
    ("size found, median", "{found:.2f}"),
)


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="examples.viewpoints", description=__doc__)
    parser.add_argument("models", nargs="+", type=Path, metavar="FILE.keras")
    parser.add_argument("--samples", type=at_least_one, default=1000)
    parser.add_argument(
        "--to", type=Path, default=seeds.FOLDER, metavar="FOLDER"
    )
    return parser


def run(options: argparse.Namespace) -> None:
    """Measures, and writes the table."""
    for file in options.models:
        if not file.is_file():
            raise UserError(f"there is no file {file}.")
    start_quietly()
    measures = [
        measured(file, _SEED + k, options.samples)
        for k, file in enumerate(options.models)
    ]
    rows = []
    for (angle, size), *of_pose in zip(
        _POSES, *(poses for poses, _ in measures), strict=True
    ):
        row = {"angle": angle, "size": size, "networks": len(of_pose)}
        row |= {k: np.mean([each[k] for each in of_pose]) for k in of_pose[0]}
        row["worst"] = min(each["right"] for each in of_pose)
        rows.append(row)
    cost = float(np.mean([cost for _, cost in measures]))
    options.to.mkdir(parents=True, exist_ok=True)
    told = json.dumps({"cost": cost, "rows": rows}, indent=1)
    (options.to / "viewpoints.json").write_text(told + "\n", "utf-8")
    write_tables(options.to / "viewpoints.md", table(rows, _COLUMNS))
    print(f"{table(rows, _COLUMNS)}\n{cost:.2f} times the time of one view")


def measured(
    file: Path, seed: int, samples: int
) -> tuple[list[dict[str, float]], float]:
    """Returns measures at each pose, and the time over that of one view."""
    import keras

    import tfcaps
    from training.datasets import load

    network = keras.models.load_model(file)
    any_view = tfcaps.models.with_viewpoints(network)
    images, labels = load("figures", None, seed=seed).test.take(slice(samples))
    rows = []
    for angle, size in _POSES:
        print(f"{file}: {angle} degrees, size {size}", flush=True)
        turned = posed(images[:], angle, size)
        back = posed(turned, -angle, 1 / size)
        found = any_view.predict(turned, verbose=0)
        _, _, angles, sizes = found["viewpoint"].T
        off = np.abs((angles - angle + 180) % 360 - 180)
        one_view, turned_back = (
            seeds.right(network.predict(seen, verbose=0), labels)
            for seen in (turned, back)
        )
        rows.append(
            {
                "upright": one_view,
                "right": seeds.right(found["lengths"], labels),
                "oracle": turned_back,
                "off": float(np.median(off)),
                "found": float(np.median(sizes)),
            }
        )
    batch = images[:100]
    times: dict[Any, list[float]] = {network: [], any_view: []}
    for _ in range(_TURNS + 1):  # the first one compiles
        for model, of_model in times.items():
            begun = time.process_time()
            model.predict_on_batch(batch)
            of_model.append(time.process_time() - begun)
    one, many = (np.median(of_model[1:]) for of_model in times.values())
    return rows, float(many / one)


def posed(images: Any, angle: float, size: float) -> Any:
    """Returns images turned against the clock and resized about the middle."""
    from scipy.ndimage import affine_transform

    # From a pixel of the result to one of the image, rows counting downwards.
    back = lines.rotation(np.deg2rad(angle)) / size
    middle = (np.array(images.shape[1:3]) - 1) / 2
    offset = middle - back @ middle
    posed = [
        affine_transform(image, back, offset, order=1, mode="nearest")
        for image in images[..., 0]
    ]
    return np.stack(posed)[..., None]


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), run))

"""Times training on kept features beside training through the backbone.

python -m benchmarks.backbone

prints, for pictures of noise and a network of `keras.applications` without
trained weights, the milliseconds of a step on images and of one on kept
features, what the features take once, and after how many epochs they pay.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.measure import interleaved
from cli import Parser, UserError, at_least_one, check_installed, run_loading
from training.quiet import start_quietly


def measure(name: str, images: int, side: int, rounds: int) -> dict[str, float]:
    """Returns milliseconds of a step, and the seconds of the features."""
    from training import applications, configs, features, fit

    data = _pictures(images, side)
    config = configs.Config(
        model="parts_capsnet",
        backbone=name,
        batch_size=32,
        epochs=features.COPIES,
    )
    # No download: trained weights would take as long.
    untrained = partial(applications.build, weights=None)
    with (
        mock.patch.object(applications, "build", untrained),
        tempfile.TemporaryDirectory() as folder,
    ):
        took: list[float] = []

        def keep(model: Any) -> features.Kept | None:
            started = time.perf_counter()
            kept = features.keep(model, data, config, Path(folder), 0)
            took.append(time.perf_counter() - started)
            return kept

        on_images = fit.prepare("baseline", data, config, None)
        on_features = fit.prepare("baseline", data, config, None, keep)
        steps = {
            title: partial(_step, ready)
            for title, ready in (
                ("images", on_images),
                ("features", on_features),
            )
        }
        timings = interleaved(f"{name}, {side}x{side}", steps, rounds)
    num_steps = on_images.batches.num_batches
    return {
        "images": timings["images"]["ms"],
        "features": timings["features"]["ms"],
        "once": took[0],
        "steps": num_steps,
    }


def _pictures(count: int, side: int) -> Any:
    """Returns a data set of noise."""
    import numpy as np

    from training import datasets
    from training.image_data import Images, Split

    draw = np.random.default_rng(0)

    def part(number: int) -> Split:
        pixels = draw.integers(0, 256, (number, side, side, 3), np.uint8)
        return Split(Images(pixels), np.arange(number) % 2)

    few = part(min(count, 32))
    return datasets.Data("noise", part(count), few, few, ("a", "b"))


def _step(ready: Any) -> None:
    """Trains on one batch, which is made as in each epoch."""
    ready.trained.train_on_batch(*ready.batches[0])


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="benchmarks/backbone.py", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add(
        "--backbone",
        default="MobileNetV3Small",
        help="a network of keras.applications (default: %(default)s)",
    )
    add("--images", type=at_least_one, default=400)
    add("--side", type=at_least_one, default=128)
    add("--rounds", type=at_least_one, default=20)
    return parser


def _check(options: argparse.Namespace) -> None:
    check_installed(data="PIL")


def _load() -> Callable[[argparse.Namespace], None]:
    start_quietly()
    return main


def main(options: argparse.Namespace) -> None:
    """Prints the times and their ratio."""
    import keras

    from training import applications

    if options.backbone not in applications.NAMES:
        raise UserError(
            f"--backbone {options.backbone} is none of "
            f"{', '.join(applications.NAMES)}."
        )
    times = measure(
        options.backbone, options.images, options.side, options.rounds
    )
    saved = (times["images"] - times["features"]) * times["steps"] / 1000
    pays = f"after {times['once'] / saved:.1f} epochs" if saved > 0 else "never"
    print(
        f"{options.backbone} on {keras.backend.backend()}, {options.images} "
        f"images of {options.side}x{options.side}: a step on images "
        f"{times['images']:.1f} ms, on kept features {times['features']:.1f} "
        f"ms, {times['images'] / times['features']:.1f} times as fast; the "
        f"features take {times['once']:.1f} s once, which pays {pays}"
    )


if __name__ == "__main__":
    sys.exit(run_loading(make_parser(), _load, _check))

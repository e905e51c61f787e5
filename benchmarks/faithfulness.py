"""Times the measures of faithfulness beside a pass of the class layer.

python -m benchmarks.faithfulness

prints, for a network on random images, the seconds of the part below the class
layer, of the class layer, and of `tfcaps.rem.faithfulness`.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.measure import interleaved
from cli import Parser, at_least_one, run_loading
from training.models import network
from training.quiet import start_quietly

_BATCH = 256
_CLASSES = 10


def measure(name: str, side: int, images: int, rounds: int) -> dict[str, float]:
    """Returns seconds by name, and `cost`, the passes of the class layer."""
    import keras
    import numpy as np

    from tfcaps import rem
    from training.networks import build

    model = build(name, (side, side, 1), _CLASSES)
    data = np.random.default_rng(0).random((images, side, side, 1), "float32")
    labels = np.arange(images) % _CLASSES
    children = model.get_layer("class_caps").input
    below = keras.Model(model.input, children)
    above = keras.Model(children, model.output)
    poses = below.predict(data, batch_size=_BATCH, verbose=0)
    timings = interleaved(
        f"faithfulness, {name}",
        {
            "below": partial(below.predict, data, batch_size=_BATCH, verbose=0),
            "class layer": partial(
                above.predict, poses, batch_size=_BATCH, verbose=0
            ),
            "faithfulness": partial(rem.faithfulness, model, (data, labels)),
        },
        rounds,
    )
    seconds = {part: timing["ms"] / 1000 for part, timing in timings.items()}
    return {**seconds, "cost": rem.faithfulness(model, (data, labels)).cost}


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="benchmarks/faithfulness.py", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--model", default="dr_capsnet_small", help="name of a network")
    add("--side", type=at_least_one, default=8, help="pixels of a side")
    add("--images", type=at_least_one, default=2000)
    add("--rounds", type=at_least_one, default=5)
    return parser


def _check(options: argparse.Namespace) -> None:
    network(options.model)


def _load() -> Callable[[argparse.Namespace], None]:
    start_quietly()
    return main


def main(options: argparse.Namespace) -> None:
    """Prints what was measured in one line."""
    found = measure(options.model, options.side, options.images, options.rounds)
    ratio = found["faithfulness"] / found["class layer"]
    print(
        f"{options.model}, {options.images:,} images: below "
        f"{found['below']:.2f} s, class layer {found['class layer']:.2f} s, "
        f"faithfulness {found['faithfulness']:.2f} s, {ratio:.1f} times the "
        f"class layer, which it passes {found['cost']:.1f} times"
    )


if __name__ == "__main__":
    sys.exit(run_loading(make_parser(), _load, _check))

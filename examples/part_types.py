"""Trains networks of parts that are not told how many kinds of parts there are.

python -m examples.part_types figures --seeds 5 6 7
python -m examples.part_types figures_repeated --seeds 5 6 7 --instances 2
python -m examples.part_types figures --seeds 5 --samples 300

Each seed draws images and weights and is trained once, without restarts. A line
for each is added to results/named_parts/types.jsonl, and types.md made of it.
"""

import argparse
import sys
from typing import Any

import numpy as np

from cli import Parser
from examples import seeds

_ALL = 7200  # images, a tenth of 8,000 being for validation
_SHIFT = 4  # pixels by which copies of few images are moved, at most
_KEYS = ("data", "images", "types at first", "instances", "epochs", "seed")
PAGE = seeds.Page(
    "types",
    (
        *((key, f"{{{key}}}") for key in _KEYS),
        ("right, %", "{right:.2f}"),
        ("loss", "{loss:.3f}"),
        ("types left", "{types:.0f}"),
        ("in trees", "{used:.0f}"),
        ("NMI", "{information:.3f}"),
        ("purity", "{purity:.3f}"),
        ("parts found once, %", "{found_once:.1f}"),
        ("leaves on own, %", "{own:.1f}"),
        ("leaves", "{leaves:.2f}"),
    ),
    _KEYS,
    lambda row: [{"images": _ALL, **row}],  # former rows do not say it
)


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = seeds.make_parser("part_types", __doc__, _ALL, 6, 2000)
    add = parser.add_argument
    add("data", help="figures, figures_of_four or figures_repeated")
    add("--types", type=int, default=16, help="types to begin with")
    add("--instances", type=int, default=1, help="parts of a type in a class")
    return parser


def measured(options: argparse.Namespace, seed: int) -> seeds.Row:
    """Trains a network of one seed, and measures it on the test images."""
    import keras

    import tfcaps
    from training.datasets import load

    keras.utils.set_random_seed(seed)
    data: Any = load(options.data, None, seed=seed)
    images, labels = data.train.images[:], data.train.labels
    if options.samples < len(images):
        images, labels = copied(images, labels, options.samples, seed)
    network = tfcaps.models.constellation_capsnet(
        images.shape[1:],
        data.num_classes,
        options.types,
        max_of_type=options.instances,
    )
    rate = seeds.falling_rate(3e-3, options.epochs, len(labels), 64)
    network.compile(keras.optimizers.Adam(rate))
    history = network.fit(images, labels, 64, options.epochs, verbose=2)
    tested = data.test.images[: options.tested]
    trees = tfcaps.rem.trees(network, tested, couplings=False)
    masks = data.masks[: len(tested)]
    known = tfcaps.rem.PartMasks(
        masks.centres, masks.loose_centres, masks.kinds, masks.loose_kinds
    )
    named: Any = tfcaps.rem.named_parts(trees, known)
    bias = np.asarray(network.get_layer("part_caps").conv.bias)
    return {
        "data": options.data,
        "images": options.samples,
        "types at first": options.types,
        "instances": options.instances,
        "epochs": options.epochs,
        "right": seeds.percent_right(
            trees.lengths, data.test.labels[: len(tested)]
        ),
        "loss": history.history["loss"][-1],
        "types": int(np.sum(bias > -1e3)),
        "used": named.types_used,
        "information": named.information,
        "purity": named.purity,
        "found_once": 100 * named.found_once,
        "own": 100 * named.own,
        "leaves": named.leaves,
    }


def copied(images: Any, labels: Any, count: int, seed: int) -> Any:
    """Returns as many images and labels, shifted copies of `count` of them."""
    from scipy.ndimage import shift

    draw = np.random.default_rng(seed)
    some = draw.permutation(len(images))[:count]
    which = draw.permutation(np.resize(some, len(images)))
    moves = _SHIFT - draw.integers(0, 2 * _SHIFT + 1, (len(images), 2))
    moved = [
        shift(images[k], (*move, 0), order=0, mode="nearest")
        for k, move in zip(which, moves, strict=True)
    ]
    return np.stack(moved), labels[which]


if __name__ == "__main__":
    sys.exit(PAGE.main(make_parser(), measured))

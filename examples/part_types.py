"""Trains networks of parts that are not told how many kinds of parts there are.

python -m examples.part_types figures --seeds 5 6 7
python -m examples.part_types figures_repeated --seeds 5 6 7 --instances 2
python -m examples.part_types figures --seeds 5 --images 300

Each seed draws images and weights and is trained once, without restarts. A line
for each is added to results/named_parts/types.jsonl, and types.md made of it.
"""

import argparse
import sys
from typing import Any

import numpy as np

from cli import Parser, UserError
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
    parser = seeds.make_parser("part_types", __doc__)
    add = parser.add_argument
    add("data", help="figures, figures_of_four or figures_repeated")
    add("--types", type=int, default=16, help="types to begin with")
    add("--instances", type=int, default=1, help="parts of a type in a class")
    add("--epochs", type=int, default=6)
    add(
        "--images",
        type=int,
        default=_ALL,
        help="train on so many, with shifted copies in the place of the others",
    )
    return parser


def measured(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Trains a network of one seed, and measures it on the test images."""
    import keras

    import tfcaps
    from training import results
    from training.datasets import load
    from training.sample import Sample

    keras.utils.set_random_seed(seed)
    data = load(options.data, None, seed=seed)
    images, labels = data.train.images[:], data.train.labels
    if options.images < len(images):
        images, labels = copied(images, labels, options.images, seed)
    network = tfcaps.models.constellation_capsnet(
        images.shape[1:],
        data.num_classes,
        options.types,
        instances=options.instances,
    )
    rate = keras.optimizers.schedules.CosineDecay(
        3e-3, options.epochs * (len(labels) // 64)
    )
    network.compile(keras.optimizers.Adam(rate))
    schedule = tfcaps.callbacks.BlueprintEstimation(
        images, labels, options.epochs, seed=seed
    )
    history = network.fit(
        images,
        labels,
        batch_size=64,
        epochs=options.epochs,
        callbacks=[schedule],
        verbose=0,
    )
    named = results.measure_parts(network, Sample(data))
    if named is None or named.found_once is None or named.own is None:
        raise UserError(f"{options.data} has no parts that are known.")
    lengths = network.predict(data.test.images[:], verbose=0)
    bias = np.asarray(network.get_layer("part_caps").conv.bias)
    return {
        "data": options.data,
        "images": options.images,
        "types at first": options.types,
        "instances": options.instances,
        "epochs": options.epochs,
        "seed": seed,
        "right": seeds.right(lengths, data.test.labels),
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

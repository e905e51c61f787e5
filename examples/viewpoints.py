"""Asks a network of upright figures about turned and resized ones.

python -m examples.viewpoints --seeds 1

A network of parts is trained on upright figures. It knows a figure at any
place, but at one angle and size. So each image is looked at from 24 directions
in three sizes: turned back and resized by each, it goes through the network,
and the view with the most evidence for any class counts. A line for each seed
is added to results/named_parts/views.jsonl, and views.md made of it.

References:
    - Ballard, 1981, "Generalizing the Hough transform to detect arbitrary
      shapes"
"""

import argparse
import itertools
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import affine_transform

from cli import Parser
from examples import seeds

Array = NDArray[Any]

VIEWS = [*itertools.product(15.0 * np.arange(24), (0.75, 1.0, 1.33))]
# Degrees against the clock, and size, at which figures are shown.
_POSES = (
    *((0, 1.0), (30, 1.0), (45, 1.0), (90, 1.0), (137, 1.0)),
    *((0, 0.7), (0, 0.8), (0, 1.2), (0, 1.4), (40, 0.8), (200, 1.25)),
)


def make_parser() -> Parser:
    """Returns the parser of the command."""
    return seeds.make_parser("viewpoints", __doc__, 8000, 6, 500)


def measured(options: argparse.Namespace, seed: int) -> seeds.Row:
    """Trains a network of one seed, and measures it at each pose."""
    import keras

    import tfcaps
    from training.datasets import figures

    def drawn(count: int, number: int) -> tuple[Array, Array]:
        (pixels, labels), _ = figures.draw(count, number + 1000 * seed)
        return (pixels / 255.0).astype("float32"), labels

    def right_at(angle: float, size: float) -> seeds.Row:
        shown = posed(images, angle, size)
        lengths, angles, sizes = any_view(network, shown)
        upright, back = (
            seeds.percent_right(network.predict(some, verbose=0), labels)
            for some in (shown, posed(shown, -angle, 1 / size))
        )
        off = np.abs((angles - angle + 180) % 360 - 180)
        return {
            "angle": angle,
            "size": size,
            "one_view": upright,
            "any_view": seeds.percent_right(lengths, labels),
            "told": back,
            "off": float(np.median(off)),
            "found": float(np.median(sizes)),
        }

    images, labels = drawn(options.samples, 21)
    keras.utils.set_random_seed(seed)
    network = tfcaps.models.constellation_capsnet(
        images.shape[1:], int(labels.max()) + 1
    )
    network.fit(images, labels, 64, options.epochs, verbose=2)
    images, labels = drawn(options.tested, 22)
    return {
        "epochs": options.epochs,
        "images": options.samples,
        "tested": options.tested,
        "poses": [right_at(*pose) for pose in _POSES],
    }


def any_view(network: Any, images: Array) -> tuple[Array, Array, Array]:
    """Asks a network what images show at any angle and size.

    Args:
        network: What `tfcaps.models.constellation_capsnet` returns, trained.
        images: Array `[n, h, w, c]`.

    Returns:
        Lengths `[n, j]`; angles `[n]` in degrees against the clock; and sizes
        `[n]`, 1 as in training, those of the view in which a class has the most
        evidence.
    """
    learner = network.learner()  # gives the evidence too
    seen = [
        learner.predict(posed(images, -angle, 1 / size), verbose=0)
        for angle, size in VIEWS
    ]
    best = np.argmax([x["evidence"].max(axis=1) for x in seen], axis=0)
    lengths = np.stack([x["lengths"] for x in seen])
    return lengths[best, np.arange(len(images))], *np.array(VIEWS)[best].T


def posed(images: Array, angle: float, size: float) -> Array:
    """Returns images turned against the clock and resized about the middle."""
    turn = np.deg2rad(angle)
    # From a pixel of the result to one of the image, rows counting downwards.
    back = np.eye(4)  # of image, row, column and channel
    back[1:3, 1:3] = [
        [np.cos(turn) / size, np.sin(turn) / size],
        [-np.sin(turn) / size, np.cos(turn) / size],
    ]
    middle = (np.array(images.shape) - 1) / 2
    offset = middle - back @ middle
    moved: Array = affine_transform(
        images, back, offset, order=1, mode="nearest"
    )
    return moved


if __name__ == "__main__":
    sys.exit(seeds.main("views", make_parser(), measured))

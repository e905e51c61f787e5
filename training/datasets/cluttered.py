"""One digit anywhere on a larger canvas, among pieces of other digits.

Each image has a digit at a random place and several square pieces that are cut
out of digits of other classes, of the same part of the data. Pieces touch
neither the digit nor each other, so that masks are exact. Images are made once,
by a fixed seed. Masks of the digit and of the pieces come with the images for
validation and test.

In the manner of Mnih and others, Recurrent models of visual attention, 2014,
section 4.1.
"""

import dataclasses

import numpy as np

from training.datasets import digits as small_digits
from training.datasets.data import Data
from training.datasets.masks import Masks, inked
from training.image_data import Array, Images, Pixels, Split

_PIECES = 6
_GAP = 2  # dark pixels around a piece
_CUTS = 4  # places of which a piece is cut out where there is most ink
_SEEDS = {"train": 31, "validation": 32, "test": 33}
_CHUNK = 500  # images made at a time


def digits(data_dir: str | None, validation: float) -> Data:
    """Makes images of scikit-learn's digits, enlarged to 16x16.

    Each training digit is in eight of them, each other one in two.

    Args:
        data_dir: Not used.
        validation: Share of the training digits that is held out.

    Returns:
        Images `[n, 32, 32, 1]`, float in [0, 1], with masks.
    """
    split = small_digits.load().with_validation(validation).resized(16)
    return _data("cluttered_digits", split, (32, 6), 8, 2)


def mnist(mnist: Data, data_dir: str | None, validation: float) -> Data:
    """Makes images of MNIST, each digit in one.

    Args:
        mnist: MNIST, nothing held out.
        data_dir: Not used.
        validation: Share of the training digits that is held out.

    Returns:
        Images `[n, 40, 40, 1]`, uint8, with masks.
    """
    split = mnist.with_validation(validation)
    return _data("cluttered_mnist", split, (40, 8), 1, 1)


def _data(
    name: str,
    split: Data,
    sizes: tuple[int, int],
    copies: int,
    held_out_copies: int,
) -> Data:
    """Makes images from sides of the canvas and of a piece."""
    train, _ = _cluttered(
        split.train, sizes, copies, _SEEDS["train"], masked=False
    )
    validation, held = _cluttered(
        split.validation, sizes, held_out_copies, _SEEDS["validation"]
    )
    test, masks = _cluttered(split.test, sizes, held_out_copies, _SEEDS["test"])
    return dataclasses.replace(
        split,
        name=name,
        train=train,
        validation=validation,
        test=test,
        masks=masks,
        validation_masks=held,
    )


def _cluttered(
    split: Split,
    sizes: tuple[int, int],
    copies: int,
    seed: int,
    *,
    masked: bool = True,
) -> tuple[Split, Masks]:
    """Puts each digit on so many canvases, with pieces of others around it."""
    rng = np.random.default_rng(seed)
    side, piece = sizes
    labels = split.labels
    rows = rng.permutation(np.tile(np.arange(len(labels)), copies))
    made = np.zeros((len(rows), side, side, 1), split.images.pixels.dtype)
    drawn = np.zeros((len(rows) * masked, 1 + _PIECES, side, side), bool)
    for start in range(0, len(rows), _CHUNK):
        some = slice(start, start + _CHUNK)
        things = _draw(made[some], split, rows[some], piece, rng)
        if masked:
            drawn[some] = things
    digits, loose = drawn[:, :1], drawn[:, 1:]
    masks = Masks(digits[:, 0], digits, loose)
    return Split(Images(made), labels[rows]), masks


def _draw(
    made: Pixels,
    split: Split,
    rows: Array,
    piece: int,
    rng: np.random.Generator,
) -> Array:
    """Draws some digits and pieces on black, and returns masks of them."""
    images, labels = split.images.pixels, split.labels
    room = made.shape[1] - images.shape[1]
    _put(made, images[rows], rng.integers(0, room + 1, size=(len(made), 2)))
    masks = [inked(made)]
    for _ in range(_PIECES):
        before = made.copy()
        cut = _cut(split, labels[rows], piece, rng)
        _put(made, cut, _free(made, piece, rng))
        masks.append(inked(made - before))
    return np.stack(masks, axis=1)


def _cut(
    split: Split, classes: Array, size: int, rng: np.random.Generator
) -> Pixels:
    """Cuts a piece out of a digit of another class for each image."""
    images, labels = split.images.pixels, split.labels
    cut_up = rng.integers(len(labels), size=len(classes))
    while (same := labels[cut_up] == classes).any():
        cut_up[same] = rng.integers(len(labels), size=np.count_nonzero(same))
    room = images.shape[1] - size
    places = rng.integers(0, room + 1, size=(_CUTS, len(classes), 2))
    cuts = np.stack([_windows(images[cut_up], p, size) for p in places])
    best = cuts.sum(axis=(2, 3, 4), dtype=np.float64).argmax(axis=0)
    return cuts[best, np.arange(len(classes))]


def _free(canvas: Pixels, size: int, rng: np.random.Generator) -> Array:
    """Draws where a piece touches nothing, `[n, 2]`; -1 where it cannot."""
    side = canvas.shape[1]
    # The first row of a window and its rows, with those of the gap around it.
    windows = np.arange(side - size + 1)[:, np.newaxis] - np.arange(side)
    rows = (windows <= _GAP) & (windows > -size - _GAP)
    rows = rows.astype(np.float32)
    ink = (canvas[..., 0] > 0).astype(np.float32)
    free = rows @ ink @ rows.T == 0.0
    drawn = np.where(free, rng.random(free.shape, np.float32), -1.0)
    drawn = drawn.reshape(len(free), -1)
    places = np.stack(
        np.unravel_index(drawn.argmax(axis=1), free.shape[1:]), axis=-1
    )
    return np.where(drawn.max(axis=1)[:, np.newaxis] >= 0.0, places, -1)


def _windows(images: Pixels, places: Array, size: int) -> Pixels:
    """Cuts a window of `size` rows and columns out of each image."""
    row, column = places[:, :, np.newaxis].swapaxes(0, 1) + np.arange(size)
    each = np.arange(len(images))[:, np.newaxis, np.newaxis]
    return images[each, row[:, :, np.newaxis], column[:, np.newaxis]]


def _put(canvas: Pixels, things: Pixels, places: Array) -> None:
    """Puts things on empty ground of each canvas, none at place -1."""
    size = things.shape[1]
    for ground, thing, (top, left) in zip(canvas, things, places, strict=True):
        if top >= 0:
            ground[top : top + size, left : left + size] += thing

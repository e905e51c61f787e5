"""Letters that are made of lines, at any place, size, angle and slant.

An image shows one of ten letters on black ground. What is drawn is that of the
task `ImToClass` of SynDaCaTE (Levi and van der Wilk, 2025, arXiv 2506.17558),
by code of our own: the letters, the 100x100 pixels, and the ranges of what is
drawn at random, which are uniform:

- wideness 0.5 to 1, slant 0 to 0.5 (shear), angle -0.5 to 0.5 radians;
- size 0.2 to 0.5 of half an image, from the letter's middle to its furthest
  end, wherever it fits into the image;
- lines of 5 to 10 pixels times the size, brightness 0.5 to 1.

It differs in this: edges are softened by the distance to them, lines are not
rounded to tenths of a pixel, and all classes are equally many. Images are drawn
by a fixed seed, the same on every machine.

The parts are the lines. The kind of a line is its direction in the upright
letter; in the image it has any. A pixel is of the nearest line.
"""

from typing import Any

import numpy as np

from training.datasets.data import Arrays
from training.images import Array

SIZE = 100
# | - / \\ and those that are at most half as wide as high.
KINDS = ("stem", "bar", "rise", "fall", "steep rise", "steep fall")
# The ends of each line, x and y in quarters; y grows upwards.
LETTERS = {
    "A": "0024 2440 1232",
    "E": "0004 0444 0242 0040",
    "F": "0004 0444 0242",
    "I": "0004",
    "L": "0004 0040",
    "M": "0014 1421 2134 3440",
    "N": "0004 0440 4044",
    "W": "0410 1023 2330 3044",
    "X": "0044 0440",
    "Z": "0444 0044 0040",
}

_WIDENESS, _SLANT, _ANGLE = (0.5, 1.0), (0.0, 0.5), (-0.5, 0.5)
_SCALE, _PEN, _INK = (0.2, 0.5), (5.0, 10.0), (0.5, 1.0)
_CHUNK = 20  # images drawn at a time


def draw(count: int, seed: int) -> tuple[Arrays, Any]:
    """Draws images of all letters, equally many, in random order.

    What is drawn depends on count and seed alone: images `[n, 100, 100, 1]`,
    uint8, and labels `[n]`; the masks of their lines, as
    `tfcaps.rem.PartMasks`.
    """
    from tfcaps.rem import PartMasks  # it takes long to load

    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % len(LETTERS))
    ends, kinds = _lines()
    ends, kinds = ends[labels], kinds[labels]  # [n, line, end, xy], [n, line]
    there = kinds >= 0
    ends, scale = _posed(ends, there, rng)
    pen = scale * rng.uniform(*_PEN, count)
    ink = rng.uniform(*_INK, count)
    # From -1 to 1, y upwards, to rows and columns, the first pixel's at 0.
    ends = (SIZE * (1.0 + ends[..., ::-1] * (-1, 1)) - 1.0) / 2.0
    images = np.empty((count, SIZE, SIZE, 1), np.uint8)
    masks = np.empty((*kinds.shape, SIZE, SIZE), bool)
    for start in range(0, count, _CHUNK):
        some = slice(start, start + _CHUNK)
        outside = _distance(ends[some], pen[some])
        outside[~there[some]] = np.inf
        nearest = outside.min(axis=1, keepdims=True)
        covered = np.clip(0.5 - nearest, 0.0, 1.0)
        masks[some] = (outside == nearest) & (covered >= 0.5)
        shown = 255.0 * ink[some, None, None] * covered[:, 0]
        images[some, ..., 0] = np.rint(shown)
    lines = PartMasks(masks, kinds=kinds, kind_names=KINDS, reach=None)
    return (images, labels), lines


def _lines() -> tuple[Array, Array]:
    """Returns ends `[letter, line, end, xy]` and kinds, -1 of no line."""
    ends, kinds = np.zeros((10, 4, 2, 2)), np.full((10, 4), -1)
    for letter, lines in enumerate(map(str.split, LETTERS.values())):
        for line, digits in enumerate(lines):
            x, y, to_x, to_y = map(int, digits)
            ends[letter, line] = np.array([[x, y], [to_x, to_y]]) / 4
            right, up = to_x - x, to_y - y
            steep = 2 if 2 * abs(right) <= abs(up) else 0
            if right and up:
                kinds[letter, line] = steep + (2 if right * up > 0 else 3)
            else:
                kinds[letter, line] = 1 if right else 0
    return ends, kinds


def _posed(
    ends: Array, there: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Puts letters at random poses into the square from -1 to 1.

    With their ends, `[n, line, end, xy]`, it returns the size of each.
    """
    count = len(ends)
    wide, slant, angle, scale = (
        rng.uniform(*limits, count)
        for limits in (_WIDENESS, _SLANT, _ANGLE, _SCALE)
    )
    place = rng.uniform(-1.0, 1.0, (count, 2))
    ends = _normal(ends, there)
    x, y = ends[..., 0] * wide[:, None, None], ends[..., 1]
    ends = _normal(np.stack([x + slant[:, None, None] * y, y], -1), there)
    cosine, sine = np.cos(angle), np.sin(angle)
    turn = np.array([[cosine, sine], [-sine, cosine]])
    ends = np.einsum("abn,nleb->nlea", turn, ends)
    middle = place * (1.0 - scale[:, None])
    return ends * scale[:, None, None, None] + middle[:, None, None], scale


def _normal(ends: Array, there: Array) -> Array:
    """Moves letters' middles to 0 and their furthest ends to 1 from it."""
    known = there[..., None, None]
    low = np.where(known, ends, np.inf).min(axis=(1, 2), keepdims=True)
    high = np.where(known, ends, -np.inf).max(axis=(1, 2), keepdims=True)
    ends = np.where(known, ends - (low + high) / 2, 0.0)
    radius = np.linalg.norm(ends, axis=-1, keepdims=True)
    return ends / radius.max(axis=(1, 2), keepdims=True)


def _distance(ends: Array, pen: Array) -> Array:
    """Returns how far pixels are outside of lines, `[n, line, h, w]`."""
    half = pen[:, None, None, None] / 2
    way = ends[:, :, 1] - ends[:, :, 0]
    length = np.linalg.norm(way, axis=-1)
    along = (way / np.maximum(length, 1e-9)[..., None])[..., None, None]
    middle = ends.mean(axis=2)[..., None, None]
    grid = np.arange(SIZE)
    down, right = grid[:, None] - middle[:, :, 0], grid - middle[:, :, 1]
    forward = np.abs(down * along[:, :, 0] + right * along[:, :, 1])
    across = np.abs(down * along[:, :, 1] - right * along[:, :, 0])
    return np.maximum(forward - length[..., None, None] / 2, across - half)

"""Brings letters upright and finds their strokes, from class labels alone.

A letter stands alone on black ground. Its place, size and slant are those of
its ink; what is left is an angle. Images of a class are turned until they look
like their mean (congealing). The frame of a class is its mean pose: so letters
of all classes stand as upright as they do on average. In the mean image of a
class, strokes are straight runs of ink, the longest first. Strokes of similar
angles are of one type. No line, kind or pose is told; that parts are straight
is.

References:
    - Learned-Miller, 2006, "Data driven image models through continuous joint
      alignment" (congealing)
    - Hough, 1962, US patent 3,069,654 (lines by voting)
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.cluster.hierarchy import fcluster, linkage

from examples.kanji.shared import SharedParts

Array = NDArray[Any]

SIDE = 32  # rows and columns of an upright letter
MIDDLE = (SIDE - 1) / 2
SPREAD = 5.0  # deviation of its ink, in pixels
_LONGEST = 3.0  # most ratio of two deviations; that of a single line is larger
_ANGLES = np.deg2rad(np.arange(-48, 49, 6))
_BLUR = 1.2  # pixels
_ROUNDS = 15
# A stroke: its least sum of ink beyond the level, in pixels; how far around it
# ink is explained.
_FEWEST, _ACROSS, _ALONG = 1.0, 1.5, 1.5
_APART = 10.0  # degrees between types
_SAME = 2.5  # pixels
# Angle, share of the size, and pixels by which pictures differ from upright.
_JITTER = (0.07, 0.06, 2.0)
_NEAR = 3.2  # pixels around a part that tell nothing
_WEIGHT = 5.0  # of a cell with a part; most have none


class Letters(NamedTuple):
    """Letters and where they stand.

    Attributes:
        ink: Images `[n, h, w]`, the strongest pixel of each being 1.
        middles: Row and column of the ink's middle, `[n, 2]`.
        spreads: What takes a circle of radius 1 to the ink's ellipse of
            deviations, `[n, 2, 2]`.
    """

    ink: Array
    middles: Array
    spreads: Array

    def seen(self, maps: Array, shifts: Any = 0.0) -> Array:
        """Returns pictures `[n, SIDE, SIDE, 1]` of the letters.

        Args:
            maps: From pixels of the picture to those of the image, without
                `middles`, `[n, 2, 2]`.
            shifts: Pixels of the image by which the middle is moved.
        """
        grid = np.indices((SIDE, SIDE)).reshape(2, -1) - MIDDLE
        at = (self.middles + shifts)[..., None] + maps @ grid
        seen = [
            ndimage.map_coordinates(ink, where, order=1, mode="grid-constant")
            for ink, where in zip(self.ink, at, strict=True)
        ]
        return np.reshape(seen, (-1, SIDE, SIDE, 1))

    def turned(self) -> Array:
        """Returns what they look like at all angles, `[n, a, pixels]`."""
        turns = (self.spreads @ rotation(angle) / SPREAD for angle in _ANGLES)
        return np.stack([_unit(self.seen(maps)) for maps in turns], axis=1)


class Frames(NamedTuple):
    """The frames of classes.

    Attributes:
        means: What each looks like at its angle, `[j, pixels]`.
        frames: From the upright letter to that angle, `[j, 2, 2]`.
    """

    means: Array
    frames: Array

    def maps(self, letters: Letters) -> Array:
        """Returns maps to each letter if it were of each class, `[n, j, 2, 2]`.

        Its angle is that at which it looks most like the class.
        """
        alike = letters.turned() @ self.means.T
        turns = rotation(_ANGLES[alike.argmax(axis=1)])
        return letters.spreads[:, None] @ turns @ self.frames / SPREAD


def standing(images: Array) -> Letters:
    """Returns where the letters of images `[n, h, w, 1]` stand."""
    ink = np.asarray(images[..., 0], "float32")
    ink = ink / ink.max(axis=(1, 2), keepdims=True)
    grid = np.indices(ink.shape[1:])
    shares = ink / ink.sum(axis=(1, 2), keepdims=True, dtype=float)
    middles = np.einsum("nhw,ahw->na", shares, grid)
    moments = np.einsum("nhw,ahw,bhw->nab", shares, grid, grid)
    moments -= middles[:, :, None] * middles[:, None]
    values, vectors = np.linalg.eigh(moments)
    values = np.maximum(values, values[:, 1:] / _LONGEST**2)
    spreads = (vectors * np.sqrt(values)[:, None]) @ vectors.transpose(0, 2, 1)
    return Letters(ink, middles, spreads)


def find(letters: Letters, labels: Array) -> tuple[Frames, Array]:
    """Finds the frames of classes, and the maps to letters `[n, 2, 2]`."""
    seen, classes = letters.turned(), np.unique(labels)
    best = np.full(len(labels), len(_ANGLES) // 2)
    for _ in range(_ROUNDS):
        for j in classes:
            own = np.flatnonzero(labels == j)
            mean = seen[own, best[own]].mean(axis=0)
            best[own] = (seen[own] @ mean).argmax(axis=1)
    means = np.stack(
        [seen[labels == j, best[labels == j]].mean(axis=0) for j in classes]
    )
    found = letters.spreads @ rotation(_ANGLES[best])
    poses = _of_size_one(found)
    inverse = np.stack([poses[labels == j].mean(axis=0) for j in classes])
    frames = np.linalg.inv(inverse)
    # On average over classes ink is as wide as high.
    ellipses = _of_size_one(inverse @ inverse.transpose(0, 2, 1)).mean(axis=0)
    values, vectors = np.linalg.eigh(ellipses)
    frames = _of_size_one(frames @ (vectors * np.sqrt(values)) @ vectors.T)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    return Frames(means, frames), found @ frames[labels] / SPREAD


def find_parts(pictures: Array, labels: Array) -> SharedParts:
    """Returns the strokes of classes in pictures of upright letters."""
    found = [
        (j, *stroke)
        for j in np.unique(labels)
        for stroke in straight_runs(pictures[labels == j].mean(axis=0)[..., 0])
    ]
    classes, rows, columns, angles, _ = np.array(found).T
    apart = np.abs(angles[:, None] - angles)
    apart = np.minimum(apart, 180.0 - apart)
    above = np.triu_indices(len(apart), 1)
    types = fcluster(linkage(apart[above], "average"), _APART, "distance")
    places = np.stack([rows, columns], axis=-1) - MIDDLE
    # Strokes that cross at their middles are at one place.
    away = np.linalg.norm(places[:, None] - places, axis=-1)
    same = (away < _SAME) & (classes[:, None] == classes)
    places = (same @ places) / same.sum(axis=1, keepdims=True)
    return SharedParts(classes.astype(int), types - 1, places)


def straight_runs(
    picture: Array, level: float = 0.4, least: float = 0.2, most: int = 6
) -> list[tuple[float, float, float, float]]:
    """Returns the strokes of a square picture, at `most` so many.

    The straight run whose pixels exceed a level, a share of the strongest one,
    by the largest sum is a stroke; then its pixels count neither for nor
    against others. The last has at least a share of the sum of the first. Each
    is row and column of its middle, angle in degrees, and length.
    """
    ink = picture / picture.max() - level
    side, centre = len(ink), (len(ink) - 1) / 2
    grid = np.indices(ink.shape) - centre
    runs: list[tuple[float, float, float, float]] = []
    first = 0.0
    while len(runs) < most:
        best = (0.0, 0.0, 0, 0, 0)
        for angle in np.deg2rad(np.arange(0, 180, 5)):
            # Rows of the turned picture are lines of this angle.
            at = rotation(angle) @ grid.reshape(2, -1)
            lines = ndimage.map_coordinates(
                ink, at + centre, order=1, cval=-level
            ).reshape(ink.shape)
            run, start = np.zeros(side), np.zeros(side, int)
            for end in range(side):
                start = np.where(run <= 0, end, start)
                run = np.maximum(run, 0.0) + lines[:, end]
                line = int(run.argmax())
                if run[line] > best[0]:
                    best = (run[line], angle, line, start[line], end)
        first = first or best[0]
        if best[0] < max(least * first, _FEWEST):
            break
        _, angle, line, begin, end = best
        across, along = np.einsum("ab,bhw->ahw", rotation(-angle), grid)
        middle = np.array([line, (begin + end) / 2]) - centre
        place = rotation(angle) @ middle + centre
        runs.append((*place, np.rad2deg(angle), end - begin + 1.0))
        ink[
            (np.abs(across - middle[0]) <= _ACROSS)
            & (np.abs(along - middle[1]) <= (end - begin) / 2 + _ALONG)
        ] = 0.0
    return runs


def jittered(
    letters: Letters,
    labels: Array,
    maps: Array,
    parts: SharedParts,
    layer: Any,
    copies: int,
    seed: int,
) -> tuple[Array, Array]:
    """Returns pictures that are not quite upright, and which type is where.

    Where several types are it is each of them to an equal share, and next to
    parts all are 0, which tells nothing: shares `[copies * n, rows, columns,
    types + 1]` for `tfcaps.parts.CellLoss`, at the places of `layer`.
    """
    _, rows, columns, types = layer.output[1].shape
    cells = np.indices((rows, columns)).transpose(1, 2, 0) * layer.stride
    cells = cells + np.array(layer.offset) - MIDDLE
    draw, (angle, size, away) = np.random.default_rng(seed), _JITTER
    images, shares, count = [], [], len(labels)
    for _ in range(copies):
        change = rotation(draw.normal(0, angle, count))
        change = change @ (np.eye(2) + draw.normal(0, size, (count, 2, 2)))
        shift = draw.uniform(-away, away, (count, 2))
        moved = np.einsum("nij,nj->ni", maps, shift)
        images.append(letters.seen(maps @ change, moved))
        there = np.linalg.inv(change)
        for n, label in enumerate(labels):
            own = parts.classes == label
            at = (parts.places[own] - shift[n]) @ there[n].T
            apart = np.linalg.norm(cells[:, :, None] - at, axis=-1)
            of_each = np.zeros((rows, columns, types + 1))
            of_each[apart.min(axis=-1) >= _NEAR, types] = 1.0
            for k, t in enumerate(parts.types[own]):
                cell = np.unravel_index(apart[..., k].argmin(), (rows, columns))
                of_each[cell][t] = 1.0
            share = of_each / np.maximum(of_each.sum(-1, keepdims=True), 1.0)
            share[..., :types] *= _WEIGHT
            shares.append(share)
    return np.concatenate(images), np.array(shares, "float32")


def rotation(angle: Any) -> Array:
    """Returns matrices `[..., 2, 2]` that turn rows and columns."""
    cosine, sine = np.cos(angle), np.sin(angle)
    rows = [np.stack(row, -1) for row in ((cosine, sine), (-sine, cosine))]
    return np.stack(rows, axis=-2)


def _of_size_one(maps: Array) -> Array:
    size = np.sqrt(np.abs(np.linalg.det(maps)))
    return maps / size[..., None, None]


def _unit(pictures: Array) -> Array:
    """Returns blurred pictures as vectors of length 1, `[n, pixels]`."""
    blurred = ndimage.gaussian_filter(pictures[..., 0], (0, _BLUR, _BLUR))
    flat = blurred.reshape(len(blurred), -1)
    return flat / np.linalg.norm(flat, axis=1, keepdims=True)

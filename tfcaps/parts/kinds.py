"""Finds the parts of classes in images, and which of them are of one kind.

The images of a class are laid on each other, and moved until their mean is
sharp: congealing. What stands out in the mean are the parts of the class. Two
of them are of one kind if they look alike, for how much such parts differ from
image to image.

References:
    - Learned-Miller, 2006, "Data driven image models through continuous joint
      alignment" (congealing)
    - Sokal, Michener, 1958, "A statistical method for evaluating systematic
      relationships" (average linkage)
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.ndimage import gaussian_filter, maximum_filter
from scipy.spatial.distance import squareform

Array = NDArray[Any]

# How often images are moved, and by how many pixels at most each time.
_ROUNDS, _REACH = 4, 2
# Standard deviation of the Gaussian window of a part, in half sides of a
# template; how much weaker than the strongest a part may be, and how near to
# another one, in such deviations.
_DEVIATION, _WEAKEST, _NEAREST = 0.36, 0.25, 2.2
# How many numbers are made of what is seen, and what is added to their
# variances, as a share.
_COMPONENTS, _RIDGE = 24, 0.05
# Pixels by which pictures are moved when they are compared.
_MOVES = np.arange(-1.5, 1.6, 0.5)


class Slots(NamedTuple):
    """The parts that classes have."""

    classes: Array  # of each part, `[s]`
    shifts: Array  # row and column from the class, in pixels, `[s, 2]`
    kinds: Array  # `[s]`, from 0 on


def find(
    images: Array,
    labels: Array,
    places: Array,
    size: int,
    distance: float,
    most: int,
) -> tuple[Slots, Array]:
    """Finds the parts of classes, and their kinds.

    Args:
        images: Images `[n, h, w, c]`.
        labels: Their classes `[n]`.
        places: Row and column of the class in each, in pixels, `[n, 2]`, to
            about two pixels.
        size: Int, odd. Rows and columns of the window around a part.
        distance: Float. Parts that differ more are of different kinds, in
            deviations of what is seen at one part.
        most: Int. The most kinds there may be.

    Returns:
        The parts, and the places, which are better now.
    """
    images = images - np.median(images, axis=(1, 2), keepdims=True)
    deviation = _DEVIATION * (size // 2)
    fading = np.exp(-0.5 * ((np.arange(size) - size // 2) / deviation) ** 2)
    fading = (fading[:, None] * fading)[..., None]
    places, classes, shifts = places.astype(float), [], []
    seen, of_slot, near = [], [], []
    for j in np.unique(labels):
        rows = np.flatnonzero(labels == j)
        places[rows], mean = _laid_on_each_other(images[rows], places[rows])
        middle = np.array(mean.shape[:2]) // 2
        for peak in _standing_out(mean, deviation):
            shift = peak - middle
            around = windows(images[rows], places[rows] + shift, size)
            seen.append((fading * around).reshape(len(rows), -1))
            of_slot += [len(classes)] * len(rows)
            moved = [peak + move for move in _moves()]
            alike = windows(np.stack([mean] * len(moved)), moved, size)
            near.append((fading * alike).reshape(len(moved), -1))
            classes.append(j)
            shifts.append(shift)
    kinds = np.ones(len(classes), int)
    if len(classes) > 1:
        pictures, numbers = np.concatenate(seen), np.array(of_slot)
        apart = _distances(pictures, numbers, np.stack(near))
        tree = linkage(squareform(apart, checks=False), "average")
        kinds = fcluster(tree, distance, "distance")
        if kinds.max() > most:
            kinds = fcluster(tree, most, "maxclust")
    return Slots(np.array(classes, int), np.array(shifts), kinds - 1), places


def windows(images: Array, centres: Any, size: int) -> Array:
    """Returns what is around a place of each image, `[n, size, size, c]`.

    Between pixels it is bilinear, and 0 beyond the border. Centres are row and
    column `[n, 2]` in pixels; `size` is odd.
    """
    centres = np.asarray(centres, float)
    low = np.floor(centres).astype(int)
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    index = low[..., None] + np.arange(size + 1) - size // 2 + 1
    down, right = (
        np.clip(index[:, axis], 0, padded.shape[axis + 1] - 1)
        for axis in (0, 1)
    )
    each = np.arange(len(images))[:, None, None]
    seen = padded[each, down[:, :, None], right[:, None]]
    part = (centres - low)[:, :, None, None, None]
    seen = seen[:, :-1] + part[:, 0] * (seen[:, 1:] - seen[:, :-1])
    return seen[:, :, :-1] + part[:, 1] * (seen[:, :, 1:] - seen[:, :, :-1])


def _laid_on_each_other(images: Array, places: Array) -> tuple[Array, Array]:
    """Returns better places of one thing in images, and the mean around them.

    The mean is as large as an image, and one pixel more if that is even.
    """
    size = max(images.shape[1:3]) | 1
    for _ in range(_ROUNDS):
        seen = windows(images, places, size)
        products = np.fft.rfft2(seen, axes=(1, 2)) * np.conj(
            np.fft.rfft2(seen.mean(axis=0), axes=(0, 1))
        )
        alike = np.fft.irfft2(products.sum(axis=-1), (size, size))
        alike = np.roll(alike, (_REACH, _REACH), (1, 2))
        alike = alike[:, : 2 * _REACH + 1, : 2 * _REACH + 1]
        moves = np.stack([_highest(each) for each in alike]) - _REACH
        places = places + moves - moves.mean(axis=0)
    return places, windows(images, places, size).mean(axis=0)


def _standing_out(mean: Array, deviation: float) -> list[Array]:
    """Returns row and column of what stands out in a mean image."""
    energy = np.sum((mean - np.median(mean, axis=(0, 1))) ** 2, axis=-1)
    energy = gaussian_filter(energy, deviation, mode="constant")
    is_peak = energy == maximum_filter(energy, 3)
    is_peak &= energy > _WEAKEST * energy.max()
    peaks = np.argwhere(is_peak)
    chosen: list[Array] = []
    for row, column in peaks[np.argsort(-energy[is_peak])]:
        around = np.pad(energy, 1)[row : row + 3, column : column + 3]
        peak = np.array([row, column]) + _highest(around) - 1
        apart = [np.linalg.norm(peak - other) for other in chosen]
        if min(apart, default=np.inf) >= _NEAREST * deviation:
            chosen.append(peak)
    return chosen


def _highest(values: Array) -> Array:
    """Returns row and column of the highest of a map, between its places."""
    peak = np.array(np.unravel_index(values.argmax(), values.shape))
    place = peak.astype(float)
    for axis, line in ((0, values[:, peak[1]]), (1, values[peak[0]])):
        if 0 < peak[axis] < len(line) - 1:
            before, at, after = line[peak[axis] - 1 : peak[axis] + 2]
            curve = before - 2 * at + after
            if curve < 0:
                place[axis] += 0.5 * (before - after) / curve
    return place


def _moves() -> Array:
    """Returns the moves `[m, 2]` in pixels, the middle one by nothing."""
    down, right = np.meshgrid(_MOVES, _MOVES, indexing="ij")
    return np.stack([down.ravel(), right.ravel()], axis=-1)


def _distances(seen: Array, of_slot: Array, near: Array) -> Array:
    """Returns how different slots look, `[s, s]`.

    That is the least Mahalanobis distance of their mean pictures, moved a
    little, by how pictures differ at one slot.

    Args:
        seen: Pictures `[k, pixels]`.
        of_slot: The slot of each, `[k]`.
        near: Mean pictures of slots, moved, `[s, m, pixels]`.
    """
    middle = seen.mean(axis=0)
    seen, near = seen - middle, near - middle
    _, vectors = np.linalg.eigh(seen.T @ seen)
    vectors = vectors[:, ::-1][:, :_COMPONENTS]
    seen, near = seen @ vectors, near @ vectors
    means = np.stack(
        [seen[of_slot == s].mean(axis=0) for s in range(len(near))]
    )
    within = seen - means[of_slot]
    covariance = within.T @ within / len(within)
    ridge = _RIDGE * np.trace(covariance) / len(covariance) + 1e-9
    covariance += ridge * np.eye(len(covariance))
    near = near @ np.linalg.cholesky(np.linalg.inv(covariance))
    still = near[:, near.shape[1] // 2]
    apart = np.linalg.norm(still[:, None, None] - near, axis=-1).min(axis=-1)
    apart = np.minimum(apart, apart.T)
    np.fill_diagonal(apart, 0.0)
    return apart


def discriminants(features: Array, groups: Array) -> tuple[Array, Array]:
    """Returns Fisher's linear discriminants of groups, as logits.

    Args:
        features: Array `[k, channels]`.
        groups: The group of each, ints `[k]`, each with a member at least.

    Returns:
        Kernel `[channels, g]` and bias `[g]`.
    """
    count = int(groups.max()) + 1
    spread = features.std(axis=0) + 1e-3
    scaled = features / spread
    means = np.stack([scaled[groups == k].mean(axis=0) for k in range(count)])
    within = scaled - means[groups]
    covariance = within.T @ within / len(within)
    kernel = np.linalg.solve(covariance + 0.1 * np.eye(len(spread)), means.T)
    bias = -0.5 * np.sum(means.T * kernel, axis=0)
    bias += np.log(np.bincount(groups, minlength=count) / len(groups))
    return kernel / spread[:, None], bias

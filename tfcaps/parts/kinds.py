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
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.ndimage import gaussian_filter, maximum_filter
from scipy.spatial.distance import squareform

from tfcaps.ops import Array

# How much kinds differ at least, and how many there may be at most.
_DISTANCE, _MOST = 3.8, 64
# How often images are moved, by how many pixels at most each time, and the
# share of them that fits worst and is left out of what is learnt.
_ROUNDS, _REACH, _MISFITS = 6, 2, 0.25
# Standard deviations of the Gaussian window of a part that are tried, in half
# sides of a template. Of those that show equally many parts one is taken that
# is so far from the least to the largest; it must exceed the least by the share
# `_STEADY`. A window is seen so far.
_STEADY = 0.15
_DEVIATIONS, _CHOSEN, _SEEN = 0.24 * 1.06 ** np.arange(17), 0.67, 2.8
# How much weaker than the strongest a part may be, and how near to another one,
# in such deviations.
_WEAKEST, _NEAREST = 0.12, 2.2
# How many numbers are made of what is seen, and what is added to their
# variances, as a share.
_COMPONENTS, _RIDGE = 24, 0.05
# How much pictures of one part differ at least, as a share of what is seen.
_LEAST_SPREAD = 0.015
_NEVER = 100.0  # times the distance of kinds: parts are not of one kind
# Logits from the likeliest group to the next one at the median place, at most:
# surer types learn no more, and under noise leave nothing to the right one.
_SURE = 2.0
# Pixels by which pictures are moved when they are compared, the middle by none.
_MOVES = np.mgrid[-1.5:1.6:0.5, -1.5:1.6:0.5].reshape(2, -1).T


class Slots(NamedTuple):
    """The parts that classes have."""

    classes: Array  # of each part, `[s]`
    shifts: Array  # row and column from the class, in pixels, `[s, 2]`
    kinds: Array  # `[s]`, from 0 on


class Parts(NamedTuple):
    """What `find` has found."""

    slots: Slots
    places: Array  # better ones of the classes, `[n, 2]`
    fits: Array  # which images are like others of their class, `[n]`
    # How far windows may change, as a share, without another number of parts.
    steady: float

    @property
    def clear(self) -> bool:
        """Whether there are parts, through windows of several sizes."""
        return len(self.slots.kinds) > 0 and self.steady >= _STEADY


def find(
    images: Array,
    labels: Array,
    places: Array,
    size: int,
    most: int = _MOST,
    repeated: bool = False,
) -> Parts:
    """Finds the parts of classes, and their kinds, `most` at most.

    Of images `[n, h, w, c]`, of the class in each, at row and column `[n, 2]`
    to about two pixels, and the `size` of a template, which is larger than a
    part. `repeated` if a class may have a kind more than once.
    """
    images = images - np.median(images, axis=(1, 2), keepdims=True)
    places, fits = places.astype(float), np.zeros(len(labels), bool)
    known, means = np.unique(labels), []
    for j in known:
        rows = np.flatnonzero(labels == j)
        places[rows], fits[rows], mean = _laid_on_each_other(
            images[rows], places[rows]
        )
        means.append(mean)
    tried = _DEVIATIONS * (size // 2)
    peaks = [[_standing_out(mean, each) for mean in means] for each in tried]
    first, last = _plateau([sum(map(len, each)) for each in peaks])
    chosen = round(first + _CHOSEN * (last - first))
    deviation, half = tried[chosen], round(_SEEN * tried[chosen])
    fading = np.exp(-0.5 * (np.arange(-half, half + 1) / deviation) ** 2)
    fading = (fading[:, None] * fading)[..., None]
    classes, shifts = [], []
    seen: list[Array] = []
    near: list[Array] = []
    for j, mean, of_class in zip(known, means, peaks[chosen], strict=True):
        rows = np.flatnonzero((labels == j) & fits)
        for peak in of_class:
            shift = peak - len(mean) // 2
            moved = [peak + move for move in _MOVES]
            pairs = (
                (seen, images[rows], places[rows] + shift),
                (near, np.stack([mean] * len(moved)), moved),
            )
            for pictures, some, centres in pairs:
                around = fading * windows(some, centres, len(fading))
                pictures.append(around.reshape(len(some), -1))
            classes.append(j)
            shifts.append(shift)
    kinds = np.ones(len(classes), int)
    if len(classes) > 1:
        apart = _distances(seen, near)
        if not repeated:  # parts of one class are never of one kind
            of_one = np.equal.outer(classes, classes)
            of_one &= ~np.eye(len(classes), dtype=bool)
            apart[of_one] = _NEVER * _DISTANCE
        tree = linkage(squareform(apart, checks=False), "average")
        kinds = fcluster(tree, _DISTANCE, "distance")
        if kinds.max() > most:
            kinds = fcluster(tree, most, "maxclust")
    slots = Slots(np.array(classes, int), np.array(shifts), kinds - 1)
    steady = float(tried[last] / tried[first] - 1.0)
    return Parts(slots, places, fits, steady)


def _plateau(counts: list[int]) -> tuple[int, int]:
    """Returns the first and the last of most that are equal, in a row."""
    starts = [
        k for k in range(len(counts)) if counts[k] != counts[k - 1] or not k
    ]
    ends = [*starts[1:], len(counts)]
    runs = [
        (end - start, -start) for start, end in zip(starts, ends, strict=True)
    ]
    length, start = max(runs)
    return -start, length - start - 1


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


def _laid_on_each_other(
    images: Array, places: Array
) -> tuple[Array, Array, Array]:
    """Returns better places of one thing, which images fit, and the mean."""
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
    seen = windows(images, places, size)
    flat = seen.reshape(len(seen), -1)
    cosines = flat @ flat.mean(axis=0)
    cosines /= np.linalg.norm(flat, axis=1) + 1e-9
    fits = cosines >= np.quantile(cosines, _MISFITS)
    return places, fits, seen[fits].mean(axis=0)


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


def _distances(seen: list[Array], near: list[Array]) -> Array:
    """Returns the least Mahalanobis distances of slots' pictures, `[s, s]`."""
    means = np.stack([pictures.mean(axis=0) for pictures in seen])
    every = np.concatenate(seen)
    middle = every.mean(axis=0)
    _, vectors = np.linalg.eigh((every - middle).T @ (every - middle))
    vectors = vectors[:, ::-1][:, :_COMPONENTS]
    within = np.concatenate(
        [
            (pictures - mean) @ vectors
            for pictures, mean in zip(seen, means, strict=True)
        ]
    )
    covariance = within.T @ within / len(within)
    identity = np.eye(len(covariance))
    # Noise, which is in all directions, does not count.
    noise = np.linalg.eigvalsh(covariance)[0]
    covariance -= noise * identity
    ridge = _RIDGE * np.trace(covariance) / len(covariance)
    ridge += _LEAST_SPREAD**2 * np.mean(np.sum(means**2, axis=1)) + 1e-9
    covariance += ridge * identity
    whiten = np.linalg.cholesky(np.linalg.inv(covariance))
    moved = np.stack(near) @ vectors @ whiten  # [s, m, components]
    still = moved[:, moved.shape[1] // 2]
    apart = np.sum((still[:, None, None] - moved) ** 2, axis=-1).min(axis=-1)
    by_noise = noise * np.sum(whiten**2) / np.array([*map(len, seen)])
    apart = np.minimum(apart, apart.T) - np.add.outer(by_noise, by_noise)
    np.fill_diagonal(apart, 0.0)
    return np.sqrt(np.maximum(apart, 0.0))


def discriminants(features: Array, groups: Array) -> tuple[Array, Array]:
    """Returns Fisher's linear discriminants of groups, as logits.

    That is kernel `[channels, g]` and bias `[g]`, of features `[k, channels]`
    and the group of each, ints `[k]`, each with a member at least.
    Logits that are surer than `_SURE` are scaled down to it.
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
    *_, second, first = np.sort(scaled @ kernel + bias, axis=1).T
    scale = _SURE / max(float(np.median(first - second)), _SURE)
    return scale * kernel / spread[:, None], scale * bias

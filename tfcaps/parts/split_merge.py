"""Finds how many types of parts there are: by merging types, and splitting.

Two types stand for one kind of part if they are found at the same places of the
classes, one here and one there; they are merged. A type stands for two kinds if
what is seen at some of its places differs from what is seen at the others; it
is split.

References:
    - Ueda et al., 2000, "SMEM algorithm for mixture models" (split and merge)
"""

import itertools
from typing import Any, NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter

from tfcaps.ops import Array

# Weaker types tell nothing of where they are found: parts of an image.
_LEAST_MASS = 0.02
# Places of a class that a type is found at are at most so many.
_MOST_SLOTS = 3
# How many numbers are made of what is seen.
_COMPONENTS = 24
# An activation above it is an occurrence; fewer of these are too few, and so is
# a single slot, whose neighbours make it differ as well.
_PRESENT, _FEWEST, _FEWEST_SLOTS = 0.2, 20, 2
# How far from even a split begins, in logits of all but the most extreme
# places: where a direction was not learnt it may be large.
_FIRST_LOGIT, _MOST_PLACES = 2.0, 0.98


class Occurrences(NamedTuple):
    """What was found in some images, whose classes are known."""

    active: Array  # activations `[n, h, w, t]` of soft competition
    cells: Array  # row and column `[n, 2]` of the cell at which the class is
    labels: Array  # classes `[n]`

    def shares(self, classes: int) -> Array:
        """Returns how often a type is so far from one of so many classes.

        That is `[j, 2h, 2w, t]`, the class itself at `[h, w]`. Smoothed, so
        that it is 1 for a part that is always found at one place.
        """
        rows, columns, types = self.active.shape[1:]
        sums = np.zeros((classes, 2 * rows, 2 * columns, types))
        for active, (row, column), label in zip(
            self.active, self.cells, self.labels, strict=True
        ):
            down = slice(rows - row, 2 * rows - row)
            right = slice(columns - column, 2 * columns - column)
            sums[label, down, right] += active
        counts = np.bincount(self.labels, minlength=classes)
        sums /= np.maximum(counts, 1)[:, None, None, None]
        # Around a lone part the filter's largest value is 1 / 2 pi.
        return (
            2.0 * np.pi * gaussian_filter(sums, (0, 1, 1, 0), mode="constant")
        )

    @property
    def mass(self) -> Array:
        """How many parts of each type an image has, `[t]`."""
        return np.sum(self.active, axis=(0, 1, 2)) / len(self.labels)


def same_kinds(
    shares: Array, mass: Array, least: float
) -> list[tuple[int, int]]:
    """Finds the types that are found at the same places.

    Two types are one if the cosine of their `Occurrences.shares` exceeds
    `least`. Of the pairs the first takes the second in, in this order.
    """
    shares, mass = shares.copy(), mass.copy()
    types = shares.shape[-1]
    alike = np.stack([_cosines(shares, t) for t in range(types)])
    pairs: list[tuple[int, int]] = []
    while True:
        strong = mass > _LEAST_MASS
        alike = np.maximum(alike, alike.T) * strong * strong[:, None]
        np.fill_diagonal(alike, 0.0)
        first, second = np.unravel_index(alike.argmax(), alike.shape)
        if alike[first, second] <= least:
            return pairs
        if mass[first] < mass[second]:
            first, second = second, first
        pairs.append((int(first), int(second)))
        for each in (shares, mass):
            each[..., first] += each[..., second]
            each[..., second] = 0.0
        alike[first] = alike[:, first] = _cosines(shares, int(first))


def _cosines(shares: Array, t: int) -> Array:
    """Returns cosines `[t]` of a type with all, the best of near shifts."""
    every = shares.reshape(-1, shares.shape[-1])
    lengths = np.linalg.norm(every, axis=0)
    best = np.zeros(len(lengths))
    for shift in np.ndindex(3, 3):
        moved = np.roll(shares[..., t], np.array(shift) - 1, (1, 2))
        best = np.maximum(best, moved.ravel() @ every)
    return best / np.maximum(lengths * lengths[t], 1e-9)


class Slots(NamedTuple):
    """Where a type is found in classes."""

    classes: Array  # of each slot, `[s]`
    cells: Array  # row and column `[s, 2]` relative to the class, in cells

    def of(self, chosen: Array) -> "Slots":
        """Returns some of them, by a mask."""
        return Slots(self.classes[chosen], self.cells[chosen])


def slots_of(shares: Array, t: int, least: float, apart: float) -> Slots:
    """Finds the places at which a type is found often enough.

    That is in more than the share `least` of the images of a class, `apart`
    cells from each other at least.
    """
    classes, cells = [], []
    middle = np.array(shares.shape[1:3]) // 2
    grid = np.indices(shares.shape[1:3])
    for j, share in enumerate(shares[..., t].copy()):
        for _ in range(_MOST_SLOTS):
            peak = np.array(np.unravel_index(share.argmax(), share.shape))
            if share[tuple(peak)] <= least:
                break
            classes.append(j)
            cells.append(peak - middle)
            away = np.hypot(*(grid - peak[:, None, None]))
            share[away <= apart] = 0.0
    return Slots(np.array(classes, int), np.array(cells, int).reshape(-1, 2))


class Split(NamedTuple):
    """A difference between two kinds of parts that one type stands for.

    `features @ kernel + bias` is the logit of the second kind. Clarity is the
    share of what differs between slots that is between the kinds, times that of
    occurrences that are told apart by what was learnt on others.
    """

    clarity: float
    second: Array  # whether each slot of the type is of the second kind, `[s]`
    kernel: Array  # `[channels]`
    bias: float


def two_kinds(
    found: Occurrences, t: int, slots: Slots, pictures: Any, features: Array
) -> Split | None:
    """Looks for two kinds of parts among the occurrences of a type.

    Slots are parted in two by what is seen at them on average (2-means), where
    what differs between images of one slot does not count. A part of a single
    kind differs from slot to slot by its neighbours alone. There is no split if
    slots or occurrences of a kind are too few. `pictures` is a function from
    image, row and column of cells, `[k, 3]`, to what is seen, `[k, pixels]`;
    features are the map `[n, h, w, channels]` that types are made of.
    """
    where, of_slot = _occurrences(found, t, slots)
    known, of_slot = np.unique(of_slot, return_inverse=True)
    number = len(known)
    if number < 2:
        return None
    counts = np.bincount(of_slot)
    seen = _components(pictures(where))
    means = np.stack([seen[of_slot == s].mean(axis=0) for s in range(number)])
    means = means @ _whitening(seen - means[of_slot])
    pairs = itertools.combinations(range(number), 2)
    tried = [_two_means(means, counts, means[list(pair)]) for pair in pairs]
    side, within = min(tried, key=lambda each: each[1])
    second = side[of_slot]
    if np.bincount(side, minlength=2).min() < _FEWEST_SLOTS:
        return None
    if np.bincount(second, minlength=2).min() < _FEWEST:
        return None
    apart = means - np.average(means, axis=0, weights=counts)
    explained = 1.0 - within / float(np.sum(apart**2, axis=1) @ counts)
    kernel, bias = _discriminant(features[tuple(where.T)], second)
    logits = np.abs(features @ kernel + bias)
    scale = min(1.0, _FIRST_LOGIT / np.quantile(logits, _MOST_PLACES))
    clarity = explained * _held_out_accuracy(seen, second)
    of_all = np.isin(np.arange(len(slots.classes)), known[side == 1])
    return Split(clarity, of_all, scale * kernel, scale * bias)


def _occurrences(
    found: Occurrences, t: int, slots: Slots
) -> tuple[Array, Array]:
    """Returns image, row and column `[k, 3]` of each, and their slots."""
    rows, columns = found.active.shape[1:3]
    where, of_slot = [], []
    for number, (j, cell) in enumerate(zip(*slots, strict=True)):
        for n in np.flatnonzero(found.labels == j):
            row, column = found.cells[n] + cell
            if not (1 <= row < rows - 1 and 1 <= column < columns - 1):
                continue
            near = found.active[
                n, row - 1 : row + 2, column - 1 : column + 2, t
            ]
            down, right = np.unravel_index(near.argmax(), near.shape)
            if near[down, right] > _PRESENT:
                where.append((n, row - 1 + down, column - 1 + right))
                of_slot.append(number)
    return np.array(where, int).reshape(-1, 3), np.array(of_slot, int)


def _components(pictures: Array) -> Array:
    """Returns their principal components, each of unit deviation."""
    pictures = pictures - pictures.mean(axis=0)
    _, vectors = np.linalg.eigh(pictures.T @ pictures)
    parts = pictures @ vectors[:, ::-1][:, :_COMPONENTS]
    return parts / (parts.std(axis=0) + 1e-6)


def _two_means(
    means: Array, counts: Array, centres: Array
) -> tuple[Array, float]:
    """Returns the cluster of each of two that k-means finds, and its cost."""
    for _ in range(20):
        costs = np.sum((means[:, None] - centres) ** 2, axis=-1)  # [s, 2]
        side = costs.argmin(axis=1)
        for k in (0, 1):
            if (own := side == k).any():
                centres[k] = np.average(means[own], axis=0, weights=counts[own])
    apart = np.sum((means - centres[side]) ** 2, axis=-1)
    return side, float(apart @ counts)


def _whitening(within: Array) -> Array:
    """Returns what makes deviations within slots those of unit balls."""
    covariance = within.T @ within / len(within)
    covariance += 0.05 * np.eye(len(covariance))
    return np.linalg.cholesky(np.linalg.inv(covariance))


def _held_out_accuracy(seen: Array, second: Array) -> float:
    learnt = np.arange(len(seen)) % 2 == 0
    kernel, bias = _discriminant(seen[learnt], second[learnt])
    told = (seen @ kernel + bias > 0) == second
    of_each = [told[~learnt & (second == k)].mean() for k in (0, 1)]
    return float(np.mean(of_each))


def _discriminant(values: Array, second: Array) -> tuple[Array, float]:
    """Returns Fisher's linear discriminant of two groups, as logits."""
    spread = values.std(axis=0) + 1e-3
    scaled = values / spread
    means = [scaled[second == k].mean(axis=0) for k in (0, 1)]
    within = scaled - np.where(second[:, None] == 1, means[1], means[0])
    covariance = within.T @ within / len(within) + 0.1 * np.eye(len(spread))
    kernel = np.linalg.solve(covariance, means[1] - means[0])
    bias = -0.5 * float(kernel @ (means[0] + means[1]))
    return kernel / spread, bias

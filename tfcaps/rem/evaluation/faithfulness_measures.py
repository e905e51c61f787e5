"""Arithmetic of the measures of faithfulness, on arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Couplings that differ less are the same but for rounding.
_DECIMALS = 6
# The same for their variance: that of couplings which differ by 1e-7.
_NO_VARIANCE = 1e-14


def kept(lengths: Array, classes: Array) -> Array:
    """Returns whether a class is the longest, bool `[b]`."""
    same: Array = lengths.argmax(axis=-1) == classes
    return same


def lost(lengths: Array, classes: Array, before: Array) -> Array:
    """Returns whether a class is lost, bool `[b]`.

    It is no longer the longest, or less than half as long as `before` `[b]`.
    """
    now = of_class(lengths, classes)
    gone: Array = ~(kept(lengths, classes) & (now >= 0.5 * before))
    return gone


def of_class(lengths: Array, classes: Array) -> Array:
    """Returns the length `[b]` of one class of each sample."""
    column = np.take_along_axis(lengths, classes[:, None], axis=-1)
    return column[:, 0]


def jaccard(first: Array, second: Array) -> float:
    """Returns the mean Jaccard index of sets, bool `[b, i]`; 1 if empty."""
    both = np.sum(first & second, axis=-1)
    either = np.sum(first | second, axis=-1)
    return float(np.mean(np.where(either, both / np.maximum(either, 1), 1.0)))


def positions(scores: Array) -> Array:
    """Returns the place of each child from the highest score on, `[b, i]`.

    Of equal scores the first comes first.
    """
    order = np.argsort(-np.round(scores, _DECIMALS), axis=-1, kind="stable")
    places = np.empty_like(order)
    np.put_along_axis(places, order, np.arange(order.shape[1])[None], axis=-1)
    return places


def rank_agreement(first: Array, second: Array) -> float:
    """Returns the mean over samples of Spearman's correlation, 0 if none.

    Args:
        first: Scores `[b, i]`.
        second: Scores `[b, i]`.
    """
    ranks = [_ranks(np.round(x, _DECIMALS)) for x in (first, second)]
    ranks = [x - np.mean(x, axis=-1, keepdims=True) for x in ranks]
    deviations = [np.sqrt(np.sum(x**2, axis=-1)) for x in ranks]
    product = deviations[0] * deviations[1]
    covariance = np.sum(ranks[0] * ranks[1], axis=-1)
    defined = product > 0
    return float(
        np.mean(
            np.where(defined, covariance / np.where(defined, product, 1), 0)
        )
    )


def _ranks(scores: Array) -> Array:
    """Returns ranks `[b, i]`, equal scores sharing their mean."""
    below = np.empty(scores.shape)
    upto = np.empty(scores.shape)
    for row, values in enumerate(scores):
        ordered = np.sort(values)
        below[row] = np.searchsorted(ordered, values, side="left")
        upto[row] = np.searchsorted(ordered, values, side="right")
    return 0.5 * (below + upto)


def class_share(values: Array, classes: Array) -> float:
    """Returns the share of the variance over samples that classes explain.

    Args:
        values: `[b, i]`; sums of squares are those over all children.
        classes: `[b]`.

    Returns:
        In [0, 1]; 1 if nothing varies.
    """
    centred = values.astype("float64") - np.mean(
        values, axis=0, dtype="float64"
    )
    total = float(np.sum(centred**2))
    if total <= _NO_VARIANCE * values.size:
        return 1.0
    between = 0.0
    for j in np.unique(classes):
        of_class_j = centred[classes == j]
        mean = np.mean(of_class_j, axis=0)
        between += len(of_class_j) * float(np.sum(mean**2))
    return min(between / total, 1.0)


def area(counts: Array, heights: Array) -> float:
    """Returns the mean area under curves, by trapezoids.

    Args:
        counts: Numbers of children `[n]`, from 0 to all.
        heights: `[b, n]`.
    """
    widths = np.diff(counts) / counts[-1]
    middles = 0.5 * (heights[:, 1:] + heights[:, :-1])
    return float(np.mean(np.sum(widths * middles, axis=-1)))


def evenly(count: int, most: int) -> Array:
    """Returns at most so many of `count` indices, evenly spaced."""
    if count <= most:
        return np.arange(count)
    return np.arange(most) * count // most

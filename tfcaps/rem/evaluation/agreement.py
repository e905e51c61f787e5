"""Agreement of two ways to sort the same things, from a table of counts."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]


def entropy(counts: ArrayLike) -> float:
    """Returns the entropy of counts in bits, 0 of none."""
    counts = np.asarray(counts, np.float64).ravel()
    shares = counts[counts > 0] / max(counts.sum(), 1.0)
    return float(max(0.0, -np.sum(shares * np.log2(shares))))


def mutual_information(table: ArrayLike) -> float:
    """Returns the normalised mutual information of rows and columns.

    That is the mutual information over the mean of both entropies, the
    "arithmetic" one of scikit-learn's `normalized_mutual_info_score`; 1 where
    neither rows nor columns differ.

    Args:
        table: How many things are of a row and a column, `[rows, columns]`.

    Returns:
        Float in [0, 1].

    References:
        - Strehl, Ghosh, 2002, "Cluster ensembles"
    """
    table = np.asarray(table, np.float64)
    rows, columns = entropy(table.sum(axis=1)), entropy(table.sum(axis=0))
    if not rows and not columns:
        return 1.0
    shared = rows + columns - entropy(table)
    return float(np.clip(2.0 * shared / (rows + columns), 0.0, 1.0))


def adjusted_rand_index(table: ArrayLike) -> float:
    """Returns how many pairs rows and columns agree on, beyond chance.

    It is that of scikit-learn's `adjusted_rand_score`.

    Args:
        table: How many things are of a row and a column, `[rows, columns]`.

    Returns:
        Float, at most 1, and 0 on average for random rows.

    References:
        - Hubert, Arabie, 1985, "Comparing partitions"
    """
    table = np.asarray(table, np.float64)
    both = _pairs(table)
    rows, columns = _pairs(table.sum(axis=1)), _pairs(table.sum(axis=0))
    total = _pairs(table.sum())
    by_chance = rows * columns / total if total else 0.0
    most = 0.5 * (rows + columns)
    if most == by_chance:
        return 1.0
    return (both - by_chance) / (most - by_chance)


def _pairs(counts: Any) -> float:
    return float(np.sum(counts * (counts - 1.0) / 2.0))

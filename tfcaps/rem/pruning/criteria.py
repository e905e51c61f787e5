"""What ranks the groups of units: the lowest scores leave first."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfcaps.rem.pruning.unit_groups import Array, GroupSlice, UnitGroups

Scores = NDArray[np.floating]


class Evidence(NamedTuple):
    """What a criterion may look at.

    Attributes:
        weights: Values of the groups' variables.
        gradients: Function that returns the gradients of the loss towards
            them, for one batch after the other.
        draw: Random numbers.
    """

    weights: Sequence[Array]
    gradients: Callable[[], Iterable[Sequence[Array]]]
    draw: np.random.Generator


def magnitude(groups: UnitGroups, evidence: Evidence) -> Scores:
    """The Euclidean norm of all weights of a group."""
    squares = np.zeros(len(groups))
    for s, array in _of_slices(groups, evidence.weights):
        squares += groups.sums(s, np.square(array, dtype=np.float64))
    return np.asarray(np.sqrt(squares))


def taylor(groups: UnitGroups, evidence: Evidence) -> Scores:
    """How much the loss changes without the group, to first order.

    For each batch the square of the sum of weight times gradient over the
    weights that make the units (Molchanov et al., 2019,
    https://arxiv.org/abs/1906.10771).
    """
    scores = np.zeros(len(groups))
    for gradients in evidence.gradients():
        products = [
            array * gradient
            for array, gradient in zip(evidence.weights, gradients, strict=True)
        ]
        change = np.zeros(len(groups))
        for s, array in _of_slices(groups, products, "made"):
            change += groups.sums(s, array.astype(np.float64))
        scores += np.square(change)
    return scores


def look_ahead(groups: UnitGroups, evidence: Evidence) -> Scores:
    """The sum of look-ahead scores of the kernels that make the units (LAKP).

    The score of a weight is its magnitude times the norm of the weights that
    make its input, and times the norm of those that read its output (FastCaps,
    https://arxiv.org/abs/2509.03103, after Park et al., 2020,
    https://arxiv.org/abs/2002.04809). Where there are none, the factor is 1.
    """
    norms = {
        side: np.append(_norms(groups, evidence.weights, side), 1.0)
        for side in ("made", "read")
    }
    sums = np.zeros(len(groups))
    for s, array in _of_slices(groups, evidence.weights, "made"):
        if array.ndim < 2:
            continue
        weighed = np.abs(array, dtype=np.float64)
        for other in groups.slices:
            if other.variable is s.variable and other.side == "read":
                shape = [1] * array.ndim
                shape[other.axis] = -1
                weighed *= norms["made"][other.groups].reshape(shape)
                break  # the inputs are counted once, by channels or types
        sums += groups.sums(s, weighed)
    return sums * norms["read"][:-1]


def at_random(groups: UnitGroups, evidence: Evidence) -> Scores:
    """Random numbers: what another criterion has to beat."""
    return evidence.draw.random(len(groups))


# What `criterion` may be.
CRITERIA: dict[str, Callable[[UnitGroups, Evidence], Scores]] = {
    "magnitude": magnitude,
    "taylor": taylor,
    "lakp": look_ahead,
    "random": at_random,
}


def _of_slices(
    groups: UnitGroups, values: Sequence[Array], side: str | None = None
) -> list[tuple[GroupSlice, Any]]:
    """Returns the slices of trained weights, of a side or all, with values."""
    known = {
        id(variable): array
        for variable, array in zip(groups.variables, values, strict=True)
    }
    return [
        (s, known[id(s.variable)])
        for s in groups.slices
        if id(s.variable) in known and side in (None, s.side)
    ]


def _norms(groups: UnitGroups, weights: Sequence[Array], side: str) -> Scores:
    """Returns the norm of the matrices of a group on one side, 1 for none."""
    squares, count = np.zeros(len(groups)), np.zeros(len(groups))
    for s, array in _of_slices(groups, weights, side):
        if array.ndim > 1:
            squares += groups.sums(s, np.square(array, dtype=np.float64))
            count += groups.sums(s, np.ones(array.shape[s.axis]))
    return np.where(count > 0, np.sqrt(squares), 1.0)

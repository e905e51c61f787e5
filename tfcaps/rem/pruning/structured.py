"""Structured pruning: units of the lowest scores leave, on a schedule."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from tfcaps.rem.compaction.units import Mask
from tfcaps.rem.pruning.pruning import (
    Schedule,
    Scheduled,
    begin,
    check_schedule,
    check_unpruned,
)
from tfcaps.rem.pruning.single_shot import Gradients
from tfcaps.rem.pruning.unit_groups import (
    KINDS,
    Array,
    GroupSlice,
    UnitGroups,
)

Scores = NDArray[np.floating]


def prune_structured(
    model: keras.Model,
    pruning_schedule: Schedule,
    *,
    units: str | Sequence[str] = ("filters", "types"),
    criterion: str = "magnitude",
    min_share: float = 0.05,
    frequency: int = 1,
    batches: Any = None,
    seed: int = 0,
) -> keras.Model:
    """Prepares a model for pruning of whole units during `fit`.

    A unit that leaves is masked together with all that makes it (kernel, bias,
    scale and shift of a normalisation) and all that reads it, so that the
    network does exactly what it does without: `tfcaps.rem.compact` removes the
    same units and makes a small dense network of the same outputs. Units that
    are tied leave together: the channels that become one capsule, and those
    that a sum adds up. Hidden capsules that leave keep their share in the
    competition for children, see `silent_parents` of the routings; those of
    `EMRouting` leave it too, and those of `ScaledDistanceRouting`, to which a
    parent of no votes is the nearest, stay.

    Each layer loses the same share of its units. Train with the callback
    `UpdatePruningStep()`, then call `strip_pruning`, then `tfcaps.rem.compact`.
    The masks live in the optimiser, as those of `prune_low_magnitude`. What has
    left never comes back.

    Args:
        model: A built `keras.Model`. It is changed in place.
        pruning_schedule: As in `prune_low_magnitude`, but its sparsity is the
            share of the multiply-adds, without a decoder's, that is removed.
        units: What may leave: `"filters"`, channels of convolutions;
            `"types"`, types of capsules and hidden capsules; `"children"`,
            single children of class capsules, which leave the parse trees; or
            several of these. Defaults to filters and types.
        criterion: What ranks the units of a layer: `"magnitude"`, the norm of
            all weights of a unit; `"taylor"`, how much the loss changes without
            it, to first order; `"random"`, to compare. Defaults to
            `"magnitude"`.
        min_share: Float in (0, 1]. Share of its units that each layer keeps at
            least. Defaults to `0.05`.
        frequency: As in `prune_low_magnitude`.
        batches: Data that `fit` takes, arrays `(x, y)` or an iterable of
            batches, which `"taylor"` reads at each update. Defaults to `None`.
        seed: Int. Of the random numbers of `"random"`. Defaults to `0`.

    Returns:
        The same model.

    Raises:
        ValueError: If an argument is out of range, no unit of these kinds may
            leave, the schedule's final share cannot be reached, `batches` are
            missing, or the model is pruned already.

    References:
        - Molchanov et al., 2019, https://arxiv.org/abs/1906.10771 (`"taylor"`)
        - PrunedCaps, 2025, https://arxiv.org/abs/2512.06003, which removes
          primary capsules
    """
    check_schedule(pruning_schedule, frequency)
    kinds = (units,) if isinstance(units, str) else tuple(units)
    if not kinds or not set(kinds) <= set(KINDS):
        raise ValueError(
            f"`units` must be of {tuple(KINDS)}. Received: units={kinds}."
        )
    if criterion not in CRITERIA:
        raise ValueError(
            f"`criterion` must be one of {tuple(CRITERIA)}. Received: "
            f"criterion={criterion!r}."
        )
    if not 0.0 < min_share <= 1.0:
        raise ValueError(
            f"`min_share` must be in (0, 1]. Received: min_share={min_share}."
        )
    if criterion == "taylor" and batches is None:
        raise ValueError(
            '`criterion="taylor"` takes gradients of the loss: give `batches`, '
            "pairs of inputs and targets."
        )
    check_unpruned(model)
    groups = UnitGroups(model, kinds)
    if not len(groups):
        raise ValueError(
            f"The model has no {' or '.join(kinds)} that may leave. Choose "
            "other `units`."
        )
    scheduled = _Structured(
        groups,
        pruning_schedule,
        frequency,
        min_share,
        CRITERIA[criterion],
        batches,
        seed,
    )
    return begin(model, scheduled)


class _Structured(Scheduled):
    """Masks whole units until a share of the multiply-adds is gone."""

    counted = "multiply-adds"

    def __init__(
        self,
        groups: UnitGroups,
        schedule: Schedule,
        frequency: int,
        min_share: float,
        criterion: Callable[..., Scores],
        batches: Any,
        seed: int,
    ):
        super().__init__(groups.variables, schedule, frequency, groups.fills)
        self.groups = groups
        self.draw = np.random.default_rng(seed)
        self._min_share = min_share
        self._criterion = criterion
        self._batches = batches
        self._gradients: Gradients | None = None
        most = self._removed(self._without(self._order(np.zeros(len(groups)))))
        if self.goal > most:
            raise ValueError(
                f"At most {most:.1%} of the multiply-adds can be removed with "
                f"min_share={min_share} and these `units`. Received: a "
                f"schedule that ends at {self.goal:.1%}."
            )

    def update(self, model: keras.Model, target: float) -> None:
        weights = self.weights(model)
        scores = self._criterion(self, model, weights)
        # What has left is at the bottom, whatever it scores.
        left = ~self.groups.kept(self.masks())
        order = self._order(np.where(left, -np.inf, scores))
        low, high = int(left.sum()), len(order)
        while low < high:  # the fewest more that are enough
            middle = (low + high) // 2
            if self._removed(self._without(order[:middle])) >= target:
                high = middle
            else:
                low = middle + 1
        keep = self._without(order[:low])
        self.prune(weights, self.groups.masks(keep))

    def reached(self) -> float:
        return self._removed(self.groups.kept(self.masks()))

    def gradients(self, model: keras.Model) -> Any:
        """Yields the gradients towards the weights for each batch."""
        if self._gradients is None:
            self._gradients = Gradients(model)
        return self._gradients.towards(self.variables, self._batches)

    def _removed(self, keep: Mask) -> float:
        """Returns the share of the multiply-adds that is removed."""
        whole = self.groups.multiply_adds(np.ones(len(keep), bool))
        return 1.0 - self.groups.multiply_adds(keep) / whole

    def _without(self, left: NDArray[np.integer]) -> Mask:
        keep = np.ones(len(self.groups), bool)
        keep[left] = False
        return keep

    def _order(self, scores: Scores) -> NDArray[np.integer]:
        """Returns the groups that may leave, the first to leave first."""
        ranks = np.empty(len(scores))
        may_leave = np.ones(len(scores), bool)
        for site in np.unique(self.groups.sites):
            members = np.flatnonzero(self.groups.sites == site)
            members = members[np.argsort(scores[members], kind="stable")]
            stay = max(round(self._min_share * len(members)), 1)
            may_leave[members[len(members) - stay :]] = False
            ranks[members] = np.arange(len(members)) / len(members)
        order = np.argsort(ranks, kind="stable")
        return order[may_leave[order]]


def magnitude(
    pruning: _Structured, model: keras.Model, weights: Sequence[Array]
) -> Scores:
    """Returns the Euclidean norm of all weights of each group."""
    squares = np.zeros(len(pruning.groups))
    for s, array in _of_slices(pruning.groups, weights):
        squares += pruning.groups.sums(s, np.square(array, dtype=np.float64))
    return np.asarray(np.sqrt(squares))


def taylor(
    pruning: _Structured, model: keras.Model, weights: Sequence[Array]
) -> Scores:
    """Returns the change of the loss without each group, to first order.

    For each batch the square of the sum of weight times gradient over the
    weights that make the units (Molchanov et al., 2019,
    https://arxiv.org/abs/1906.10771).
    """
    scores = np.zeros(len(pruning.groups))
    for gradients in pruning.gradients(model):
        products = [w * g for w, g in zip(weights, gradients, strict=True)]
        change = np.zeros(len(scores))
        for s, array in _of_slices(pruning.groups, products):
            if s.side == "made":
                change += pruning.groups.sums(s, array.astype(np.float64))
        scores += np.square(change)
    return scores


def at_random(
    pruning: _Structured, model: keras.Model, weights: Sequence[Array]
) -> Scores:
    """Returns random numbers: what another criterion has to beat."""
    return pruning.draw.random(len(pruning.groups))


# What `criterion` may be.
CRITERIA: dict[str, Callable[..., Scores]] = {
    "magnitude": magnitude,
    "taylor": taylor,
    "random": at_random,
}


def _of_slices(
    groups: UnitGroups, values: Sequence[Array]
) -> list[tuple[GroupSlice, Any]]:
    """Returns the slices of trained weights with the values of these."""
    known = {
        id(variable): array
        for variable, array in zip(groups.variables, values, strict=True)
    }
    return [
        (s, known[id(s.variable)])
        for s in groups.slices
        if id(s.variable) in known
    ]

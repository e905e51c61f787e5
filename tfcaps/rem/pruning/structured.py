"""Structured pruning: units of the lowest scores leave, on a schedule."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

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
    Site,
    UnitGroups,
)

# What the schedule's share is of.
TARGETS = ("multiply_adds", "parameters")
SCOPES = ("global", "layer")
Scores = NDArray[np.floating]


def prune_structured(
    model: keras.Model,
    pruning_schedule: Schedule,
    *,
    units: str | Sequence[str] = ("filters", "types"),
    criterion: str = "magnitude",
    target: str = "multiply_adds",
    scope: str = "layer",
    min_share: float = 0.05,
    frequency: int = 1,
    batches: Any = None,
    seed: int = 0,
    original: keras.Model | None = None,
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

    Train with the callback `UpdatePruningStep()`, then call `strip_pruning`,
    then `tfcaps.rem.compact`. The masks live in the optimiser, as those of
    `prune_low_magnitude`. What has left never comes back.

    Args:
        model: A built `keras.Model`. It is changed in place.
        pruning_schedule: As in `prune_low_magnitude`, but its sparsity is the
            share of `target` that has been removed.
        units: What may leave: `"filters"`, channels of convolutions;
            `"types"`, types of capsules and hidden capsules; `"children"`,
            single children of class capsules, which leave the parse trees;
            `"components"`, those of all poses of a layer; or several of these.
            Defaults to filters and types.
        criterion: What ranks units: `"magnitude"`, the norm of all weights of
            a unit; `"taylor"`, how much the loss changes without it, to first
            order; `"lakp"`, look-ahead kernel pruning; `"random"`, to compare.
            Defaults to `"magnitude"`.
        target: `"multiply_adds"` or `"parameters"`, without a decoder's.
            Defaults to `"multiply_adds"`.
        scope: `"layer"` removes the same share of the units of each layer;
            `"global"` compares scores across layers: those of `"taylor"` as
            they are, others divided by the mean of their layer, which can
            starve a layer whose units differ more. Defaults to `"layer"`.
        min_share: Float in (0, 1]. Share of its units that each layer keeps at
            least. Defaults to `0.05`.
        frequency: As in `prune_low_magnitude`.
        batches: Data that `fit` takes, arrays `(x, y)` or an iterable of
            batches, which `"taylor"` reads at each update. Defaults to `None`.
        seed: Int. Of the random numbers of `"random"`. Defaults to `0`.
        original: The network from which `compact` made `model`, before its
            first unit left. The shares of `pruning_schedule` and `min_share`
            are of this one, so that a network can be compacted in the middle
            of its pruning, which then goes on with the smaller one. Types of
            which `compact` removed the last child count as gone. It is not
            changed. Defaults to `None`, for the model itself.

    Returns:
        The same model.

    Raises:
        ValueError: If an argument is out of range, no unit of these kinds may
            leave, the schedule's final share cannot be reached, `batches` are
            missing, the model is pruned already, or is no part of `original`.

    References:
        - Molchanov et al., 2019, https://arxiv.org/abs/1906.10771 (`"taylor"`)
        - FastCaps, 2025, https://arxiv.org/abs/2509.03103 (`"lakp"`)
        - PrunedCaps, 2025, https://arxiv.org/abs/2512.06003, which removes
          primary capsules
    """
    check_schedule(pruning_schedule, frequency)
    kinds = (units,) if isinstance(units, str) else tuple(units)
    for name, values, known in (
        ("units", kinds, tuple(KINDS)),
        ("criterion", (criterion,), tuple(CRITERIA)),
        ("target", (target,), TARGETS),
        ("scope", (scope,), SCOPES),
    ):
        if not values or not set(values) <= set(known):
            raise ValueError(
                f"`{name}` must be of {known}. Received: {name}="
                f"{values if name == 'units' else values[0]!r}."
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
    settings = _Settings(criterion, target, scope, min_share, seed)
    return begin(
        model,
        _Structured(
            UnitGroups(model, kinds),
            pruning_schedule,
            frequency,
            settings,
            batches,
            kinds,
            original,
        ),
    )


class _Settings(NamedTuple):
    """Arguments of `prune_structured`."""

    criterion: str
    target: str
    scope: str
    min_share: float
    seed: int


class _Whole(NamedTuple):
    """The network before its first unit left, of which shares are.

    Attributes:
        cost: Its multiply-adds, or parameters.
        units: How many units each place has that may leave.
        size: How many numbers are in the weights of these units.
    """

    cost: float
    units: dict[Site, int]
    size: int


class _Structured(Scheduled):
    """Masks whole units until a share of the cost is gone."""

    def __init__(
        self,
        groups: UnitGroups,
        schedule: Schedule,
        frequency: int,
        settings: _Settings,
        batches: Any,
        kinds: Sequence[str],
        original: keras.Model | None,
    ):
        super().__init__(groups.variables, schedule, frequency, groups.fills)
        self.groups = groups
        self.settings = settings
        self.counted = settings.target.replace("_", "-")
        self._batches = batches
        self._gradients: Gradients | None = None
        self._draw = np.random.default_rng(settings.seed)
        if not len(groups):
            raise ValueError(
                f"The model has no {' or '.join(kinds)} that may leave. "
                "Choose other `units`."
            )
        if original is not None:
            self._whole = self._whole_of(UnitGroups(original, kinds))
            self._check_part()
            return  # whether the goal can be reached was checked before
        self._whole = self._whole_of(groups)
        order = self._order(np.zeros(len(groups)))
        most = 1.0 - self._cost(self._without(order)) / self._whole.cost
        if self.goal > most:
            raise ValueError(
                f"At most {most:.1%} of the {self.counted} can be removed "
                f"with min_share={settings.min_share} and these `units`. "
                f"Received: a schedule that ends at {self.goal:.1%}."
            )

    def update(self, model: keras.Model, target: float) -> None:
        weights = self.weights(model)
        evidence = Evidence(weights, lambda: self._towards(model), self._draw)
        scores = CRITERIA[self.settings.criterion](self.groups, evidence)
        # What has left is at the bottom, whatever it scores.
        left = ~self.groups.kept(self.masks())
        order = self._order(np.where(left, -np.inf, scores))
        most = (1.0 - target) * self._whole.cost
        low, high = int(left.sum()), len(order)
        while low < high:  # the fewest more that are enough
            middle = (low + high) // 2
            if self._cost(self._without(order[:middle])) <= most:
                high = middle
            else:
                low = middle + 1
        keep = self._without(order[:low])
        self.prune(weights, self.groups.masks(keep))
        self.groups.silence(keep)

    def detach(self, model: keras.Model) -> None:
        if self._masks:
            self.groups.silence(self.groups.kept(self.masks()))
        super().detach(model)

    def reached(self) -> float:
        keep = np.ones(len(self.groups), bool)
        if self._masks:
            keep = self.groups.kept(self.masks())
        return 1.0 - self._cost(keep) / self._whole.cost

    def sparsity(self) -> float:
        gone = self._whole.size - sum(
            math.prod(variable.shape) for variable in self.variables
        )
        return (self._num_pruned() + gone) / self._whole.size

    def _towards(self, model: keras.Model) -> Iterable[Sequence[Any]]:
        if self._gradients is None:
            self._gradients = Gradients(model, self._batches or ())
        return self._gradients.towards(self.variables)

    def _whole_of(self, groups: UnitGroups) -> _Whole:
        return _Whole(
            self._cost(np.ones(len(groups), bool), groups),
            _num_units(groups),
            sum(math.prod(variable.shape) for variable in groups.variables),
        )

    def _check_part(self) -> None:
        """Raises `ValueError` if the model has units that are new."""
        for site, count in _num_units(self.groups).items():
            before = self._whole.units.get(site, 0)
            if count > before:
                layer, kind = site
                raise ValueError(
                    "`original` must be the network of which the model is "
                    f"what is left. Received: one with {before} {kind} that "
                    f"may leave in the layer {layer!r}, where the model has "
                    f"{count}."
                )

    def _cost(self, keep: Mask, groups: UnitGroups | None = None) -> float:
        groups = groups or self.groups
        if self.settings.target == "parameters":
            return groups.parameters(keep)
        return groups.multiply_adds(keep)

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
            sorted_members = members[np.argsort(scores[members], kind="stable")]
            # Those that are no longer in the model had the lowest scores.
            before = self._whole.units[self.groups.site_names[site]]
            stay = max(round(self.settings.min_share * before), 1)
            may_leave[sorted_members[max(len(members) - stay, 0) :]] = False
            if self.settings.scope == "layer":
                places = np.arange(before - len(members), before) / before
                ranks[sorted_members] = places
            else:
                ranks[members] = scores[members] / self._scale(scores[members])
        order = np.argsort(ranks, kind="stable")
        return order[may_leave[order]]

    def _scale(self, scores: Scores) -> float:
        """Returns the factor that makes scores of layers comparable."""
        alive = scores[np.isfinite(scores)]
        if self.settings.criterion == "taylor" or not alive.size:
            return 1.0  # changes of the loss are comparable as they are
        return float(alive.mean()) or 1.0


def _num_units(groups: UnitGroups) -> dict[Site, int]:
    """Returns the number of units of each place."""
    counts = np.bincount(groups.sites, minlength=len(groups.site_names))
    return dict(zip(groups.site_names, counts.tolist(), strict=True))


class Evidence(NamedTuple):
    """The evidence that a criterion may look at.

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
    """The change of the loss without the group, to first order.

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

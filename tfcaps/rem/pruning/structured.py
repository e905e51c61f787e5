"""Structured pruning: units of the smallest weights leave, on a schedule."""

import bisect
import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from tfcaps.graphs import check_unquantized, classifier
from tfcaps.layers.units import Ids, Mask, Slice
from tfcaps.ops import Array
from tfcaps.rem.compaction.rules import any_at
from tfcaps.rem.compaction.units import UnitCall, Units
from tfcaps.rem.multiply_adds import of_layer
from tfcaps.rem.pruning.pruning import Schedule, Scheduled, begin

# The share of its units that each layer keeps at least.
_LEAST = 0.05


def prune_structured(
    model: keras.Model, pruning_schedule: Schedule
) -> keras.Model:
    """Prepares a model for pruning of whole units during `fit`.

    Units are channels of convolutions, types of capsules and hidden capsules.
    A unit that leaves is masked together with all that makes it (kernel, bias,
    scale and shift of a normalisation) and all that reads it, so that the
    network does exactly what it does without: `tfcaps.rem.compact` removes the
    same units and makes a small dense network of the same outputs. Units that
    are tied leave together: the channels that become one capsule, and those
    that a sum adds up. Hidden capsules that leave keep their share in the
    competition for children, see `silent_parents` of the routings, but those of
    `EMRouting`; those of `ScaledDistanceRouting`, to which a parent of no votes
    is the nearest, stay.

    Each layer loses the same share of its units, those of the smallest norm of
    all weights that make or read them, and keeps a twentieth. Train with the
    callback `UpdatePruningStep()`, then call `strip_pruning`, then
    `tfcaps.rem.compact`. What has left never comes back.

    Args:
        model: A built `keras.Model`. It is changed in place, and returned.
        pruning_schedule: As in `prune_low_magnitude`, but its sparsity is the
            share of the multiply-adds, without a decoder's, that is removed.

    Raises:
        ValueError: If no unit may leave, the schedule's final share cannot be
            reached, or the model is pruned already.

    References:
        - PrunedCaps, 2025, https://arxiv.org/abs/2512.06003, which removes
          primary capsules
    """
    check_unquantized(model)
    groups = UnitGroups(model)
    if not len(groups):
        raise ValueError(
            f"The model {model.name!r} has no filters and no types of capsules "
            "that may leave."
        )
    return begin(model, _Structured(groups, pruning_schedule))


class UnitGroups:
    """The groups of units that may leave, of a layer each, one of `sites`."""

    def __init__(self, model: keras.Model):
        units = Units(classifier(model), frozen_stay=True)
        chosen = ~units.pinned
        # Of each unit, -1 for those that stay.
        groups = np.where(chosen, np.cumsum(chosen) - 1, -1)[units.groups]
        self.sites = np.full(int(chosen.sum()), -1)
        self._costs = [_cost(c, groups) for c in units.calls if c.inputs]
        self.variables: list[Any] = []
        self.fills: list[float] = []
        # Slices of groups, with the place of their weight in `variables`.
        self._made: list[tuple[int, Slice]] = []
        self._read: list[tuple[int, Slice]] = []
        self._places: dict[int, int] = {}
        for call in units.calls:
            if call.units is not None:
                made, read = call.units.made, call.units.read
                self._add(made, groups[call.outputs[0]], self._made)
                self._add(read, groups[call.inputs[0]], self._read)

    def __len__(self) -> int:
        return len(self.sites)

    def multiply_adds(self, keep: Mask) -> float:
        """Returns the multiply-adds with the groups that are kept."""
        keep = np.append(keep, True)  # what belongs to no group, at -1
        return sum(
            each * math.prod(float(keep[axis].mean()) for axis in axes)
            for each, axes in self._costs
        )

    def masks(self, keep: Mask) -> list[Array]:
        """Returns the mask of each of `variables`, True where it is kept."""
        keep = np.append(keep, True)
        masks = [np.ones(v.shape, bool) for v in self.variables]
        for k, s in self._made + self._read:
            along = np.moveaxis(masks[k], s.axis, -1)  # a view
            along &= keep[s.units]
        return masks

    def kept(self, masks: Sequence[Array]) -> Mask:
        """Returns the groups that the masks of `variables` keep."""
        keep = np.zeros(len(self) + 1, bool)
        for k, s in self._made:
            np.logical_or.at(keep, s.units, any_at(masks[k], s.axis))
        return keep[:-1]

    def frozen(self) -> Mask:
        """Returns the groups that have a weight that is no longer trained."""
        stay = np.zeros(len(self) + 1, bool)
        for k, s in self._made + self._read:
            if not self.variables[k].trainable:
                stay[s.units] = True
        return stay[:-1]

    def norms(self, weights: Sequence[Array]) -> Array:
        """Returns the norm of all weights of each group, of `variables`."""
        squares = np.zeros(len(self) + 1)
        for k, s in self._made + self._read:
            others = tuple(n for n in range(weights[k].ndim) if n != s.axis)
            each = np.square(weights[k], dtype=np.float64).sum(axis=others)
            np.add.at(squares, s.units, each)
        return np.asarray(np.sqrt(squares[:-1]))

    def _add(
        self,
        slices: Sequence[Slice],
        groups: Ids,
        known: list[tuple[int, Slice]],
    ) -> None:
        """Adds slices of groups, and the site of those that are new."""
        for s in slices:
            s = s._replace(units=groups[s.units])
            members = np.unique(s.units[s.units >= 0])
            new = members[self.sites[members] < 0]
            if known is self._made and len(new):
                self.sites[new] = self.sites.max() + 1
            if len(members) and s.variable.trainable:
                k = self._places.setdefault(id(s.variable), len(self.fills))
                if k == len(self.fills):
                    self.variables.append(s.variable)
                    self.fills.append(0.0)
                self.fills[k] = self.fills[k] or s.fill
                known.append((k, s))


def _cost(call: UnitCall, groups: Ids) -> tuple[int, list[Ids]]:
    """Returns the multiply-adds of a call, and the groups of its axes."""
    count = of_layer(call.layer, call.shape) or 0
    if call.units is None:
        return count, []
    tensors = [call.outputs[0]]
    if call.units.sources is None:
        tensors.append(call.inputs[0])
    return count, [groups[ids] for ids in tensors if len(ids)]


class _Structured(Scheduled):
    """Masks whole units until a share of the multiply-adds is gone."""

    counted = "multiply-adds"

    def __init__(self, groups: UnitGroups, schedule: Schedule):
        super().__init__(schedule, groups.variables, groups.fills)
        self.groups = groups
        most = self._removed(self._without(self._order(np.zeros(len(groups)))))
        if self.goal > most:
            raise ValueError(
                f"At most {most:.1%} of the multiply-adds can be removed, as "
                "each layer keeps a twentieth of its units. Received: a "
                f"schedule that ends at {self.goal:.1%}."
            )

    def masks_for(self, weights: Sequence[Array], target: float) -> list[Array]:
        scores = self.groups.norms(weights)
        # What has left is at the bottom, whatever it scores.
        left = ~self.groups.kept(self.masks())
        frozen = self.groups.frozen() & ~left
        order = self._order(np.where(left, -np.inf, scores))
        order = order[~frozen[order]]
        fewest = bisect.bisect_left(
            range(len(order)),
            target,
            lo=int(left.sum()),
            key=lambda count: self._removed(self._without(order[:count])),
        )
        return self.groups.masks(self._without(order[:fewest]))

    def reached(self) -> float:
        return self._removed(self.groups.kept(self.masks()))

    def _removed(self, keep: Mask) -> float:
        """Returns the share of the multiply-adds that is removed."""
        whole = self.groups.multiply_adds(np.ones(len(keep), bool))
        return 1.0 - self.groups.multiply_adds(keep) / whole

    def _without(self, left: Ids) -> Mask:
        return ~np.isin(np.arange(len(self.groups)), left)

    def _order(self, scores: Array) -> Ids:
        """Returns the groups that may leave, the first to leave first."""
        ranks = np.empty(len(scores))
        may_leave = np.ones(len(scores), bool)
        for site in np.unique(self.groups.sites):
            members = np.flatnonzero(self.groups.sites == site)
            members = members[np.argsort(scores[members], kind="stable")]
            stay = max(round(_LEAST * len(members)), 1)
            may_leave[members[len(members) - stay :]] = False
            ranks[members] = np.arange(len(members)) / len(members)
        order = np.argsort(ranks, kind="stable")
        return order[may_leave[order]]

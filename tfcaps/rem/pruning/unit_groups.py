"""Groups of units that leave a network together, with their weights and cost.

What a unit is, which units are tied and which weights are theirs say the rules
of `tfcaps.rem.compaction`, so that what is pruned here is what `compact`
removes.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import NDArray

from tfcaps.graphs import encoder
from tfcaps.rem.compaction.graph import Call, Graph, num_units
from tfcaps.rem.compaction.rules import Tied
from tfcaps.rem.compaction.units import Ids, Mask, any_at
from tfcaps.rem.multiply_adds import of_layer

Array = NDArray[Any]

# What may leave, by name.
KINDS = {
    "filters": "channels of convolutions",
    "types": "types of capsules, and hidden capsules",
    "children": "children of class capsules, one at a time",
}


class GroupSlice(NamedTuple):
    """The entries of a weight that belong to groups.

    Attributes:
        variable: The weight.
        axis: An axis of it.
        groups: Group of each entry along the axis, -1 for none.
        side: `"made"` if the weight makes the unit, `"read"` if it reads it.
        fill: What the weight is where a unit was left out.
    """

    variable: Any
    axis: int
    groups: Ids
    side: str
    fill: float


class _Cost(NamedTuple):
    """Multiply-adds of a layer, in proportion to what is left of axes.

    Each axis is a list of arrays of groups: an entry of it is left if the
    groups at its place in all arrays are.
    """

    each: int
    axes: list[list[Ids]]


class UnitGroups:
    """The groups of a model that may leave.

    Args:
        model: A functional or sequential model; without its decoder.
        kinds: Names out of `KINDS`.

    Attributes:
        sites: Number of the place of each group: those that the same layer
            makes, and that are of one kind, have one place.
        slices: What belongs to the groups.
        variables: The trainable weights of the slices.
        fills: What each of them is where a unit was left out.
    """

    def __init__(self, model: keras.Model, kinds: Sequence[str]):
        graph = Graph(encoder(model))
        self._calls = [
            call
            if getattr(call.layer, "trainable", True)
            else call._replace(rule=None)  # a frozen layer stays
            for call in graph.calls
        ]
        self._ids: dict[int, Ids] = {}
        self._parents: list[int] = []
        self._pinned: set[int] = set()
        self._kinds: list[str] = []
        self._find_units(graph)
        own = self._own_units()
        group_of = self._groups_of(kinds)
        sites = self._make_slices(group_of, own)
        self.sites: Ids = np.unique(sites, return_inverse=True)[1]
        self._make_costs(group_of, own)
        unique = {id(s.variable): s.variable for s in self.slices}
        fills = {id(s.variable): s.fill for s in self.slices if s.fill}
        self.variables = [v for v in unique.values() if v.trainable]
        self.fills = [fills.get(id(v), 0.0) for v in self.variables]

    def __len__(self) -> int:
        return self._count

    def multiply_adds(self, keep: Mask) -> float:
        """Returns the multiply-adds with the groups that are kept."""
        keep = _with_others(keep)
        return sum(
            cost.each * math.prod(_left(keep, axis) for axis in cost.axes)
            for cost in self._costs
        )

    def masks(self, keep: Mask) -> list[Array]:
        """Returns the mask of each of `variables`, True where it is kept."""
        masks = {id(v): np.ones(v.shape, bool) for v in self.variables}
        for s in self.slices:
            if (mask := masks.get(id(s.variable))) is not None:
                mask &= _left_of(s, keep)
        return list(masks.values())

    def kept(self, masks: Sequence[Array]) -> Mask:
        """Returns the groups that the masks of `variables` keep."""
        by_variable = dict(zip(map(id, self.variables), masks, strict=True))
        keep = np.zeros(len(self) + 1, bool)
        for s in self.slices:
            mask = by_variable.get(id(s.variable))
            if mask is not None and s.side == "made":
                np.logical_or.at(keep, s.groups, any_at(mask, s.axis))
        return keep[:-1]

    def sums(self, s: GroupSlice, values: Array) -> Array:
        """Returns the sum over each group of what a slice has of values."""
        others = tuple(k for k in range(values.ndim) if k != s.axis)
        return np.bincount(
            s.groups + 1, values.sum(axis=others), len(self) + 1
        )[1:]

    def _find_units(self, graph: Graph) -> None:
        """Numbers units, and finds which are tied and which must stay."""
        for tensor in (*graph.inputs, *graph.outputs):
            self._pinned.update(self._number(tensor).tolist())
        for call in self._calls:
            inputs, outputs = self._of_call(call)
            if call.rule is None:
                for ids in (*inputs, *outputs):
                    self._pinned.update(ids.tolist())
                continue
            fixed = call.rule.unprunable([len(ids) for ids in outputs])
            for ids, mask in zip(outputs, fixed, strict=True):
                self._pinned.update(ids[mask].tolist())
            for one, other in call.rule.tied_units(inputs, outputs):
                for a, b in zip(one.tolist(), other.tolist(), strict=True):
                    self._parents[self._root(a)] = self._root(b)

    def _number(self, tensor: Any) -> Ids:
        """Returns the numbers of a tensor's units, new ones if it is new."""
        if id(tensor) not in self._ids:
            kind = "filters" if len(tensor.shape) == 4 else "types"
            self._ids[id(tensor)] = self._add(num_units(tensor), kind)
        return self._ids[id(tensor)]

    def _add(self, count: int, kind: str) -> Ids:
        start = len(self._parents)
        self._parents.extend(range(start, start + count))
        self._kinds.extend([kind] * count)
        return np.arange(start, start + count)

    def _root(self, unit: int) -> int:
        while self._parents[unit] != unit:
            self._parents[unit] = self._parents[self._parents[unit]]
            unit = self._parents[unit]
        return unit

    def _of_call(self, call: Call) -> tuple[list[Ids], list[Ids]]:
        return (
            [self._number(tensor) for tensor in call.inputs],
            [self._number(tensor) for tensor in call.outputs],
        )

    def _own_units(self) -> dict[int, Ids]:
        """Returns the units that concern one layer alone, by its call."""
        own: dict[int, Ids] = {}
        for call in self._calls:
            slices = [] if call.rule is None else call.rule.local_slices()
            if slices or id(call.layer) not in own:
                count = max((len(s.units) for s in slices), default=0)
                own[id(call.layer)] = self._add(count, "children")
        return own

    def _groups_of(self, kinds: Sequence[str]) -> Ids:
        """Returns the group of each unit, -1 for none, and finds the sites."""
        roots = np.array([self._root(u) for u in range(len(self._parents))])
        pinned = {self._root(unit) for unit in self._pinned}
        of_root = dict(zip(roots.tolist(), self._kinds, strict=True))
        for root, kind in zip(roots.tolist(), self._kinds, strict=True):
            if kind != "filters":
                of_root[root] = kind
        numbers: dict[int, int] = {}
        for root in roots.tolist():
            if root not in pinned and of_root[root] in kinds:
                numbers.setdefault(root, len(numbers))
        self._count = len(numbers)
        return np.array([numbers.get(root, -1) for root in roots.tolist()])

    def _make_slices(self, group_of: Ids, own: dict[int, Ids]) -> Ids:
        """Finds the slices, and returns the place of each group."""
        self.slices: list[GroupSlice] = []
        places = np.full(len(self), -1)
        sites: dict[Any, int] = {}
        for call in self._calls:
            if call.rule is None:
                continue
            inputs, outputs = self._of_call(call)
            for side, slices, ids in (
                ("made", call.rule.producer_slices(), outputs),
                ("read", call.rule.consumer_slices(), inputs),
                ("made", call.rule.local_slices(), [own[id(call.layer)]]),
            ):
                for s in slices:
                    groups = group_of[ids[0]][s.units]
                    if (groups < 0).all():
                        continue
                    self.slices.append(
                        GroupSlice(s.variable, s.axis, groups, side, s.fill)
                    )
                    if side == "made":
                        of_site = np.unique(groups[groups >= 0])
                        new = of_site[places[of_site] < 0]
                        key = id(call.layer), ids[0][0]
                        places[new] = sites.setdefault(key, len(sites))
        return places

    def _make_costs(self, group_of: Ids, own: dict[int, Ids]) -> None:
        self._costs: list[_Cost] = []
        for call in self._calls:
            if not call.inputs:
                continue
            count = of_layer(call.layer, tuple(call.inputs[0].shape)) or 0
            axes: list[list[Ids]] = []
            if call.rule is not None:
                inputs, outputs = self._of_call(call)
                axes = [[group_of[outputs[0]]]]
                if not isinstance(call.rule, Tied):
                    types = group_of[inputs[0]]
                    axes.append([call.rule.units_of_children(types)])
                    if len(alone := group_of[own[id(call.layer)]]):
                        axes[1].append(alone)
            self._costs.append(_Cost(count, axes))


def _left_of(s: GroupSlice, keep: Mask) -> Mask:
    """Returns where a slice is kept, to be broadcast to its variable."""
    shape = [1] * len(s.variable.shape)
    shape[s.axis] = -1
    return _with_others(keep)[s.groups].reshape(shape)


def _with_others(keep: Mask) -> Mask:
    """Adds what belongs to no group, at the place -1."""
    return np.append(keep, True)


def _left(keep: Mask, groups: list[Ids]) -> float:
    """Returns the share of an axis that is left."""
    left = np.logical_and.reduce([keep[of_entries] for of_entries in groups])
    return float(left.mean()) if left.size else 1.0

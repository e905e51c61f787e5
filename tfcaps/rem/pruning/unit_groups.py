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
from keras import ops
from numpy.typing import NDArray

from tfcaps.graphs import encoder
from tfcaps.layers import PartCaps
from tfcaps.rem.compaction.graph import Call, Graph
from tfcaps.rem.compaction.units import Ids, Mask, Rule, Slice, Tied
from tfcaps.rem.multiply_adds import of_layer
from tfcaps.rem.parse.with_couplings import WithCouplings

Array = NDArray[Any]
# Name of a layer, and the kind of its units.
Site = tuple[str, str]

# What may leave, by name.
KINDS = {
    "filters": "channels of convolutions",
    "types": "types of capsules, and hidden capsules",
    "children": "children of class capsules, one at a time",
    "components": "components of all capsules of a layer",
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
        site_names: Name of the layer and kind of the units of each place.
        slices: What belongs to the groups.
        variables: The trainable weights of the slices.
        fills: What each of them is where a unit was left out.
    """

    def __init__(self, model: keras.Model, kinds: Sequence[str]):
        model = encoder(model)
        # The second has components as units; their calls are the same.
        self._graphs = [Graph(model), Graph(model, components=True)]
        self._calls = [
            _unwrapped(call, graph)
            for graph in self._graphs
            for call in graph.calls
        ]
        self._ids: dict[int, Ids] = {}
        self._parents: list[int] = []
        self._pinned: set[int] = set()
        self._kinds: list[str] = []
        self._find_units()
        own = self._own_units()
        group_of = self._groups_of(kinds)
        sites, names = self._make_slices(group_of, own)
        used, numbers = np.unique(sites, return_inverse=True)
        self.sites: Ids = numbers
        self.site_names = [names[site] for site in used.tolist()]
        self._make_costs(group_of, own)
        unique = {id(s.variable): s.variable for s in self.slices}
        kept = [v for v in unique.values() if v.trainable]
        self.variables = kept
        fills = {id(s.variable): s.fill for s in self.slices if s.fill}
        self.fills = [fills.get(id(variable), 0.0) for variable in kept]
        self._sizes = {key: math.prod(v.shape) for key, v in unique.items()}
        total = sum(math.prod(weight.shape) for weight in model.weights)
        self._other_parameters = total - sum(self._sizes.values())

    def __len__(self) -> int:
        return self._count

    # ------------------------------------------------------------ what it costs

    def multiply_adds(self, keep: Mask) -> float:
        """Returns the multiply-adds with the groups that are kept."""
        keep = _with_others(keep)
        return sum(
            cost.each * math.prod(_left(keep, axis) for axis in cost.axes)
            for cost in self._costs
        )

    def parameters(self, keep: Mask) -> float:
        """Returns the parameters with the groups that are kept."""
        keep = _with_others(keep)
        axes: dict[tuple[int, int], list[Ids]] = {}
        for s in self.slices:
            axes.setdefault((id(s.variable), s.axis), []).append(s.groups)
        shares = dict.fromkeys(self._sizes, 1.0)
        for (key, _), groups in axes.items():
            shares[key] *= _left(keep, groups)
        return self._other_parameters + sum(
            size * shares[key] for key, size in self._sizes.items()
        )

    # --------------------------------------------------------------- the masks

    def masks(self, keep: Mask) -> list[Array]:
        """Returns the mask of each of `variables`, True where it is kept."""
        keep = _with_others(keep)
        masks = {id(v): np.ones(v.shape, bool) for v in self.variables}
        for s in self.slices:
            if (mask := masks.get(id(s.variable))) is not None:
                shape = [1] * mask.ndim
                shape[s.axis] = -1
                mask &= keep[s.groups].reshape(shape)
        return list(masks.values())

    def kept(self, masks: Sequence[Array]) -> Mask:
        """Returns the groups that the masks of `variables` keep."""
        by_variable = dict(zip(map(id, self.variables), masks, strict=True))
        keep = np.zeros(len(self) + 1, bool)
        for s in self.slices:
            mask = by_variable.get(id(s.variable))
            if mask is not None and s.side == "made":
                left = np.moveaxis(mask, s.axis, 0)
                alive = left.reshape(len(left), -1).any(axis=1)
                np.logical_or.at(keep, s.groups, alive)
        return keep[:-1]

    def sums(self, s: GroupSlice, values: Array) -> Array:
        """Returns the sum over each group of what a slice has of values.

        Args:
            s: A slice.
            values: Array of the shape of its variable, or the sums for each
                entry along the axis.
        """
        if values.ndim > 1:
            values = np.moveaxis(values, s.axis, 0)
            values = values.reshape(len(values), -1).sum(axis=1)
        return np.bincount(
            s.groups + 1, weights=values, minlength=len(self) + 1
        )[1:]

    def silence(self, keep: Mask) -> None:
        """Zeroes what weights that no optimiser moves have of groups that left.

        They have no mask, and whoever sets them may set them again.
        """
        keep = _with_others(keep)
        for s in self.slices:
            if s.side == "read" and not s.variable.trainable:
                shape = [1] * len(s.variable.shape)
                shape[s.axis] = -1
                left = keep[s.groups].reshape(shape)
                s.variable.assign(ops.where(left, s.variable, s.fill))

    # --------------------------------------------------------- how it is made

    def _find_units(self) -> None:
        """Numbers units, and finds which are tied and which must stay."""
        for graph in self._graphs:
            for tensor in (*graph.inputs, *graph.outputs):
                self._pinned.update(self._number(tensor, graph).tolist())
            for call in graph.calls:
                for tensor in (*call.inputs, *call.outputs):
                    self._number(tensor, graph)
        for call in self._calls:
            inputs, outputs = self._of_call(call)
            if call.rule is None:
                for ids in (*inputs, *outputs):
                    self._pinned.update(ids.tolist())
                continue
            fixed = call.rule.fixed([len(ids) for ids in outputs])
            for ids, mask in zip(outputs, fixed, strict=True):
                self._pinned.update(ids[mask].tolist())
            for one, other in call.rule.ties(inputs, outputs):
                for a, b in zip(one.tolist(), other.tolist(), strict=True):
                    self._parents[self._root(a)] = self._root(b)

    def _number(self, tensor: Any, graph: Graph) -> Ids:
        """Returns the numbers of a tensor's units, new ones if it is new."""
        if id(tensor) not in self._ids:
            kind = "filters" if len(tensor.shape) == 4 else "types"
            if graph is self._graphs[1]:
                kind = "components"
            self._ids[id(tensor)] = self._add(graph.num_units(tensor), kind)
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
            [self._ids[id(tensor)] for tensor in call.inputs],
            [self._ids[id(tensor)] for tensor in call.outputs],
        )

    def _own_units(self) -> dict[int, Ids]:
        """Returns the units that concern one layer alone, by its call."""
        own: dict[int, Ids] = {}
        for call in self._calls:
            slices = [] if call.rule is None else call.rule.own()
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

    def _make_slices(
        self, group_of: Ids, own: dict[int, Ids]
    ) -> tuple[list[int], dict[int, Site]]:
        """Finds the slices, and returns the place of each group.

        And the name of each place.
        """
        self.slices: list[GroupSlice] = []
        places = np.full(len(self), -1)
        sites: dict[Any, int] = {}
        names: dict[int, Site] = {-1: ("", "")}
        for call in self._calls:
            if call.rule is None:
                continue
            inputs, outputs = self._of_call(call)
            for side, slices, ids in (
                ("made", call.rule.made(), outputs),
                ("read", call.rule.read(), inputs),
                ("made", call.rule.own(), [own[id(call.layer)]]),
            ):
                for s in slices:
                    added = self._slice(s, group_of[ids[0]], side)
                    if added is None or side == "read":
                        continue
                    of_site = np.unique(added.groups[added.groups >= 0])
                    new = of_site[places[of_site] < 0]
                    key = id(call.layer), ids[0][0]
                    site = sites.setdefault(key, len(sites))
                    places[new] = site
                    names[site] = call.layer.name, self._kinds[ids[0][0]]
        return places.tolist(), names

    def _slice(self, s: Slice, groups: Ids, side: str) -> GroupSlice | None:
        """Keeps a slice if it belongs to some group."""
        of_entries = groups[s.units]
        if (of_entries < 0).all():
            return None
        added = GroupSlice(s.variable, s.axis, of_entries, side, s.fill)
        self.slices.append(added)
        return added

    def _make_costs(self, group_of: Ids, own: dict[int, Ids]) -> None:
        self._costs: list[_Cost] = []
        half = len(self._calls) // 2
        pairs = zip(self._calls[:half], self._calls[half:], strict=True)
        for call, same in pairs:
            if not call.inputs:
                continue
            shape = tuple(call.inputs[0].shape)
            count = of_layer(call.layer, shape) or 0
            if not count:
                continue
            axes: list[list[Ids]] = []
            children: list[list[Ids]] = []
            if call.rule is not None:
                inputs, outputs = self._of_call(call)
                axes.append([group_of[outputs[0]]])
                if not isinstance(call.rule, Tied):
                    alone = group_of[own[id(call.layer)]]
                    children = [_left_of(call.rule, group_of[inputs[0]], alone)]
            read: list[list[Ids]] = []
            if same.rule is not None:
                inputs, outputs = self._of_call(same)
                axes.append([group_of[outputs[0]]])
                read = [[group_of[inputs[0]]]]
            # Routing passes over votes, whatever the children's components.
            passes = _passes(call.layer, shape, count)
            once = _once(call.layer, count)
            each = count - passes - once
            self._costs.append(_Cost(each, axes + children + read))
            self._costs.append(_Cost(passes, axes + children))
            self._costs.append(_Cost(once, children + read))


def _passes(layer: Any, shape: Any, count: int) -> int:
    """Returns the number of a layer's multiply-adds that routing takes."""
    routing = getattr(layer, "routing", None)
    if routing is None or not hasattr(layer, "transformation"):
        return 0
    rows = math.isqrt(layer.dim) if layer.matrix else 1
    votes = shape[-1] // rows
    return count * routing.vote_passes // (votes + routing.vote_passes)


def _once(layer: Any, count: int) -> int:
    """Returns the multiply-adds of the part that all outputs share."""
    # Beside its types, part capsules have one filter for nothing.
    return count // (layer.num_types + 1) if isinstance(layer, PartCaps) else 0


def _unwrapped(call: Call, graph: Graph) -> Call:
    """Returns a call as pruning sees it.

    That of a routed layer that is asked for its couplings is the layer's own.
    A frozen layer has no rule, so that it stays.
    """
    if isinstance(call.layer, WithCouplings):
        call = call._replace(layer=call.layer.layer)
        call = call._replace(rule=graph.rule(call))
    if not getattr(call.layer, "trainable", True):
        return call._replace(rule=None)
    return call


def _left_of(rule: Rule, types: Ids, own: Ids) -> list[Ids]:
    """Returns the groups of types, and of each child if these are units too."""
    return [rule.children(types), *([own] if len(own) else [])]


def _with_others(keep: Mask) -> Mask:
    """Adds what belongs to no group, at the place -1."""
    return np.append(keep, True)


def _left(keep: Mask, groups: list[Ids]) -> float:
    """Returns the share of an axis that is left."""
    left = np.logical_and.reduce([keep[of_entries] for of_entries in groups])
    return float(left.mean()) if left.size else 1.0

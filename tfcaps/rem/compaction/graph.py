"""The calls of a model, and the groups of units that only leave together."""

from collections import Counter
from typing import Any, NamedTuple

import keras
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tfcaps.graphs import calls_of
from tfcaps.rem.compaction.rules import rule_for
from tfcaps.rem.compaction.units import Ids, Mask, Rule, Shape, Values


class Call(NamedTuple):
    """A call of a layer.

    Attributes:
        layer: The layer, or an operation.
        shape: Of its first input, if it has one.
        inputs: Numbers of the units of each input.
        outputs: Those of each output.
        rule: Its rule, if it has one.
    """

    layer: Any
    shape: Shape
    inputs: list[Ids]
    outputs: list[Ids]
    rule: Rule | None


class Units:
    """The units of a functional model, numbered, and their groups.

    Args:
        model: The model.
        frozen_stay: Bool. Whether layers that are not trained keep their units.
            Defaults to `False`.

    Attributes:
        calls: The calls, in the order in which they happen.
        groups: Group of each unit.
        pinned: Whether each group stays, whatever its weights.
    """

    def __init__(self, model: keras.Model, frozen_stay: bool = False):
        copy, calls = calls_of(model)
        self._numbers: dict[int, Ids] = {}
        total = 0
        times = Counter(id(call.layer) for call in calls)

        def numbers(tensor: Any) -> Ids:
            nonlocal total
            if id(tensor) not in self._numbers:
                start, total = total, total + num_units(tensor)
                self._numbers[id(tensor)] = np.arange(start, total)
            return self._numbers[id(tensor)]

        pinned = [numbers(tensor) for tensor in (*copy.inputs, *copy.outputs)]
        ties: list[tuple[Ids, Ids]] = []
        self.calls = []
        for layer, taken, given, in_training in calls:
            is_known = times[id(layer)] == 1 and not in_training
            if frozen_stay and not getattr(layer, "trainable", True):
                is_known = False
            shapes = [tuple(tensor.shape) for tensor in taken]
            rule = None
            if is_known:
                rule = rule_for(layer, shapes, tuple(given[0].shape))
            inputs, outputs = (list(map(numbers, x)) for x in (taken, given))
            if rule is None or rule.stays(len(outputs)):
                pinned += outputs
            if rule is None:
                pinned += inputs
            else:
                ties += rule.tied_units(inputs, outputs)
            shape = shapes[0] if shapes else ()
            self.calls.append(Call(layer, shape, inputs, outputs, rule))
        no_ids = np.zeros(0, int)
        one, other = (
            np.concatenate([no_ids, *ids])
            for ids in ([t[0] for t in ties], [t[1] for t in ties])
        )
        edges = np.ones(len(one)), (one, other)
        count, self.groups = connected_components(
            coo_array(edges, (total, total)), directed=False
        )
        self.pinned = np.zeros(count, bool)
        self.pinned[self.groups[np.concatenate([no_ids, *pinned])]] = True

    def constants(self) -> Values:
        """Returns the value of each unit, NaN if images change it."""
        values = np.full(len(self.groups), np.nan)
        for call in self.calls:
            if call.rule is not None:
                known = call.rule.constants([values[k] for k in call.inputs])
                for ids, of_output in zip(call.outputs, known, strict=False):
                    values[ids] = of_output
        return values

    def needed(self, values: Values) -> Mask:
        """Returns a mask of the groups that something depends on.

        Args:
            values: The constants.
        """
        keep = self.pinned.copy()
        for call in self.calls:
            if call.rule is not None and call.rule.competes:
                keep[self.groups[call.outputs[0]][~call.rule.silent()]] = True
        self._grow(keep, values)
        for ids in self._numbers.values():
            if len(ids) and not keep[self.groups[ids]].any():
                keep[self.groups[ids[0]]] = True  # no layer without units
                self._grow(keep, values)
        return keep

    def _grow(self, keep: Mask, values: Values) -> None:
        """Adds the groups that those which are kept depend on."""
        before = -1
        while before < (before := keep.sum()):
            for call in reversed(self.calls):
                if call.rule is not None:
                    wanted = keep[self.groups[call.outputs[0]]]
                    inputs = [values[ids] for ids in call.inputs]
                    used = call.rule.used(wanted, inputs)
                    keep[self.groups[call.inputs[0]][used]] = True


def num_units(tensor: Any) -> int:
    """Returns the number of units of a tensor."""
    axes = len(tensor.shape)
    axis = {3: 1, 4: 3, 5: 3}.get(axes)
    return 0 if axis is None else int(tensor.shape[axis] or 0)

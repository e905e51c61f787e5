"""The units of a model: which depend on which, and which leave together."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tfcaps.graphs import calls_of
from tfcaps.layers.units import Ids, LayerUnits, Mask, Shape
from tfcaps.rem.compaction.rules import AXIS, any_at, units_of

Values = NDArray[np.floating]


class UnitCall(NamedTuple):
    """A call of a layer or an operation, and the numbers of its units."""

    layer: Any
    shape: Shape  # of the first input
    inputs: list[Ids]
    outputs: list[Ids]
    units: LayerUnits | None

    def used(self, wanted: Mask) -> Mask:
        """Returns the input units that the `wanted` output units read."""
        if self.units is None or self.units.sources is not None:
            return np.zeros(
                len(self.inputs[0]), bool
            )  # but those that are tied
        slices = [s for s in self.units.read if s.counts]
        used = np.full(len(self.inputs[0]), not slices)
        for s in slices:
            array = array_of(s.variable) != 0
            for made in self.units.made:
                if made.variable is s.variable:
                    array = np.compress(wanted[made.units], array, made.axis)
            np.logical_or.at(used, s.units, any_at(array, s.axis))
        return used

    def silent(self) -> Mask:
        """Returns the output units whose weights are as if they had left."""
        silent = np.ones(len(self.outputs[0]), bool)
        for s in self.units.made if self.units else ():
            if s.counts:
                array = array_of(s.variable)
                differs = array != np.asarray(s.fill, array.dtype)
                np.logical_and.at(silent, s.units, ~any_at(differs, s.axis))
        return silent

    def rebuilt(self, keep: Mask, values: Values) -> tuple[Any, list[Any]]:
        """Returns a layer for the units that are left, and its weights.

        What the others are in every image becomes a part of biases.
        """
        layer = self.layer
        if not isinstance(layer, keras.Layer) or (
            self.units is None and not layer.variables
        ):
            return layer, []  # Keras refuses to make a `Lambda` again
        config = layer.get_config()
        arrays = {id(v): array_of(v) for v in layer.weights}
        if self.units is not None:
            taken, left = keep[self.inputs[0]], keep[self.outputs[0]]
            config |= self.units.settings(left)
            constant = np.nan_to_num(values[self.inputs[0]]) * ~taken
            for kernel, bias in self.units.folds:
                sums = constant @ array_of(kernel).sum(axis=(0, 1))
                array = arrays[id(bias)] + sums
                arrays[id(bias)] = array.astype(arrays[id(bias)].dtype)
            for slices, mask in (
                (self.units.made, left),
                (self.units.read, taken),
            ):
                for s in slices:
                    array = arrays[id(s.variable)]
                    array = np.compress(mask[s.units], array, axis=s.axis)
                    arrays[id(s.variable)] = array
        return type(layer).from_config(config), [*arrays.values()]


class Units:
    """The units of a functional model, numbered, and their groups.

    Units of one of the `groups` leave together; those that are `pinned` stay,
    and with `frozen_stay` those of layers that are not trained.
    """

    def __init__(self, model: keras.Model, frozen_stay: bool = False):
        copy, calls = calls_of(model)
        self._numbers: dict[int, Ids] = {}
        times = Counter(id(call.layer) for call in calls)

        def numbers(tensor: Any) -> Ids:
            if id(tensor) not in self._numbers:
                start = sum(map(len, self._numbers.values()))
                axis = AXIS.get(len(tensor.shape))
                count = 0 if axis is None else int(tensor.shape[axis] or 0)
                self._numbers[id(tensor)] = np.arange(start, start + count)
            return self._numbers[id(tensor)]

        pinned = [numbers(tensor) for tensor in (*copy.inputs, *copy.outputs)]
        ties: list[tuple[Ids, Ids]] = []
        self.calls = []
        for layer, taken, given, in_training in calls:
            shapes = [tuple(tensor.shape) for tensor in taken]
            units = None
            frozen = frozen_stay and not getattr(layer, "trainable", True)
            if times[id(layer)] == 1 and not in_training and not frozen:
                units = units_of(layer, shapes, tuple(given[0].shape))
            inputs, outputs = (list(map(numbers, x)) for x in (taken, given))
            if units is None or not _are_all(units, given):
                units = None
                pinned += inputs + outputs
            elif units.sources is not None:
                ties += [(ids, outputs[0]) for ids in units.sources(inputs)]
            else:
                ties += [(inputs[0], ids) for ids in inputs[1:]]
                if units.stay or len({*map(len, outputs)}) > 1:
                    pinned += outputs
                else:
                    ties += [(outputs[0], ids) for ids in outputs[1:]]
            shape = shapes[0] if shapes else ()
            self.calls.append(UnitCall(layer, shape, inputs, outputs, units))
        total = sum(map(len, self._numbers.values()))
        one, other = np.concatenate(
            [np.zeros((2, 0), int), *map(np.stack, ties)], axis=1
        )
        edges = np.ones(len(one)), (one, other)
        count, self.groups = connected_components(
            coo_array(edges, (total, total)), directed=False
        )
        self.pinned = np.zeros(count, bool)
        self.pinned[self.groups[np.concatenate(pinned)]] = True

    def constants(self) -> Values:
        """Returns what each unit is in every image, NaN if that varies."""
        values = np.full(len(self.groups), np.nan)
        for call in self.calls:
            if (units := call.units) is None:
                continue
            if units.sources is None:
                outputs: Any = np.where(call.silent(), units.value, np.nan)
            else:
                inputs = [values[ids] for ids in call.inputs]
                outputs = units.sources(inputs)[0]
                if callable(units.value):
                    outputs = units.value(inputs)
            ids = call.outputs[units.active[1]]
            if len(ids):  # not the activations of classes, [b, j]
                values[ids] = outputs
        return values

    def needed(self, values: Values) -> Mask:
        """Returns a mask of the groups that something depends on."""
        keep = self.pinned.copy()
        for call in self.calls:
            if call.units is not None and call.units.compete:
                keep[self.groups[call.outputs[0]][~call.silent()]] = True
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
                if call.units is None or not call.inputs:
                    continue
                used = call.used(keep[self.groups[call.outputs[0]]])
                of_input = values[call.inputs[call.units.active[0]]]
                varies = of_input != 0  # or NaN
                if call.units.folds:
                    varies = np.isnan(of_input)
                # A pose of 0 casts no vote; an activation of 0 needs both.
                used = used | varies if call.units.active[0] else used & varies
                keep[self.groups[call.inputs[0]][used]] = True


def _are_all(units: LayerUnits, outputs: Sequence[Any]) -> bool:
    """Tells whether outputs are those of units, and lengths of the first."""
    count, shape = units.outputs or len(outputs), outputs[0].shape[:-1]
    others = outputs[count:]
    return len(outputs) >= count and all(x.shape == shape for x in others)


def array_of(variable: Any) -> NDArray[Any]:
    """Returns the value of a variable."""
    return np.asarray(ops.convert_to_numpy(variable))

"""Rules by which layers are made smaller."""

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps.layers import (
    CapsuleConv2D,
    ClassCaps,
    CompactCaps,
    ConvCaps,
    ConvCaps3D,
    PartCaps,
    PrimaryCaps,
    PrimaryMatrixCaps,
    Squash,
)
from tfcaps.rem.compaction.units import (
    Ids,
    Mask,
    Rule,
    Shape,
    Slice,
    Values,
    any_at,
)

# Layers, and activations of layers, that look at one number at a time.
_ELEMENTWISE = (
    *("linear", "relu", "relu6", "leaky_relu", "elu", "selu", "silu", "gelu"),
    *("sigmoid", "hard_sigmoid", "tanh", "softplus", "swish"),
)


class Convolution(Rule):
    """Conv2D, and capsule layers that are one or two of them inside.

    Args:
        layer: The layer.
        convs: Its convolutions.
        unit: How many of their channels make an output unit; 0 if all of these
            stay.
        num_units: Name of the setting that counts the output units.
        of: How many channels an input unit has.
    """

    def __init__(
        self,
        layer: Any,
        convs: list[Any],
        unit: int = 0,
        num_units: str = "",
        of: int = 1,
    ):
        super().__init__(layer)
        self.convs = convs
        self.unit = unit
        self.num_units = num_units
        self.of = of

    def stays(self, outputs: int) -> bool:
        return not self.unit

    def constants(self, inputs: list[Values]) -> list[Values]:
        if not self.unit:
            return []
        [conv] = self.convs
        units = np.repeat(inputs[0], self.of)
        kernel = self._array(conv.kernel)
        reached = np.asarray(kernel.any(axis=(0, 1)))
        not_known = np.isnan(units)
        if conv.padding != "valid":
            not_known |= units != 0  # zeros surround the map
        varies = reached[not_known].any(axis=0)
        sums = np.nan_to_num(units) @ kernel.sum(axis=(0, 1))
        if conv.use_bias:
            sums = sums + self._array(conv.bias)
        if self.unit == 1:
            return [np.where(varies, np.nan, apply(conv.activation, sums))]
        silent = ~varies & (sums == 0)
        whole = silent.reshape(-1, self.unit).all(axis=1)
        return [np.where(whole, 0.0, np.nan)]

    def used(self, wanted: Mask, inputs: list[Values]) -> Mask:
        used = super().used(wanted, inputs)
        # In half precision the bias would be rounded otherwise than the sum.
        if self.layer.compute_dtype == "float32" and all(
            conv.padding == "valid" for conv in self.convs
        ):
            used &= np.isnan(inputs[0])  # constants become a bias
        return used

    def rebuild(
        self, taken: Mask, wanted: Mask, inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        layer, weights = super().rebuild(taken, wanted, inputs)
        places = {id(v): k for k, v in enumerate(self.layer.weights)}
        left_out = np.where(taken, 0.0, np.nan_to_num(inputs[0]))
        for conv in self.convs:
            kernel = self._array(conv.kernel)
            bias = np.repeat(left_out, self.of) @ kernel.sum(axis=(0, 1))
            if self.unit:
                bias = bias[np.repeat(wanted, self.unit)]
            if conv.use_bias:
                place = places[id(conv.bias)]
                weights[place] = (weights[place] + bias).astype(kernel.dtype)
            elif bias.any():
                settings = self._settings(wanted)
                layer = self._changed(**settings, use_bias=True)
                weights.append(bias.astype(kernel.dtype))
        return layer, weights

    def producer_slices(self) -> list[Slice]:
        if not self.unit:
            return []
        [conv] = self.convs
        units = np.arange(conv.kernel.shape[3]) // self.unit
        slices = [Slice(conv.kernel, 3, units)]
        return slices + [Slice(conv.bias, 0, units)] * conv.use_bias

    def consumer_slices(self) -> list[Slice]:
        kernels = [conv.kernel for conv in self.convs]
        return [
            Slice(kernel, 2, np.arange(kernel.shape[2]) // self.of)
            for kernel in kernels
        ]


class Tied(Rule):
    """A layer each of whose output units is made of a certain input unit.

    By default of the same unit of each input.
    """

    def tied_units(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        return [(ids, outputs[0]) for ids in inputs]

    def used(self, wanted: Mask, inputs: list[Values]) -> Mask:
        return np.zeros(len(inputs[0]), bool)  # but those that are tied


class Depthwise(Tied):
    """Depthwise PrimaryCaps: each channel becomes one component."""

    num_units = "num_types"

    def constants(self, inputs: list[Values]) -> list[Values]:
        conv = self.layer.conv
        silent = ~any_at(self._array(conv.kernel) != 0, 2) | (inputs[0] == 0)
        if conv.use_bias:
            silent &= self._array(conv.bias) == 0
        whole = silent.reshape(-1, self.layer.dim).all(axis=1)
        return [np.where(whole, 0.0, np.nan)]

    def tied_units(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        return [(inputs[0], np.repeat(outputs[0], self.layer.dim))]

    def producer_slices(self) -> list[Slice]:
        conv = self.layer.conv
        units = np.arange(conv.kernel.shape[2]) // self.layer.dim
        slices = [Slice(conv.kernel, 2, units)]
        return slices + [Slice(conv.bias, 0, units)] * conv.use_bias


class EachUnit(Tied):
    """A layer that treats each unit by itself, with or without weights."""

    def __init__(self, layer: Any, shape: Shape):
        super().__init__(layer)
        self.shape = shape

    def constants(self, inputs: list[Values]) -> list[Values]:
        values = inputs[0]
        if len(self.shape) == 4:
            outputs = apply(self._call, values)
            return [np.where(np.isnan(values), np.nan, outputs)]
        zeros = ops.zeros((1,) * max(len(self.shape), 2))
        if np.any(ops.convert_to_numpy(self._call(zeros))):
            return []
        return [np.where(values == 0, 0.0, np.nan)]

    def producer_slices(self) -> list[Slice]:
        return [
            Slice(weight, 0, np.arange(weight.shape[0]))
            for weight in self.layer.weights
            if len(weight.shape) == 1
        ]

    def _settings(self, wanted: Mask) -> dict[str, Any]:
        # A normalisation of as many groups as units, however many there are.
        return {"groups": -1} if hasattr(self.layer, "groups") else {}

    def _call(self, inputs: Any) -> Any:
        return self.layer(inputs, training=False)


class Sum(Tied):
    """Add: a unit of the sum is made of the same unit of each input."""

    def constants(self, inputs: list[Values]) -> list[Values]:
        return [np.sum(inputs, axis=0)]


class Rearranged(Tied):
    """A layer whose output has the inputs' units in another order or shape.

    Args:
        layer: The layer.
        arrange: Function from an array for each input to that of the output.
        target_shape: Function from the number of units to the new setting, of
            a `Reshape`.
    """

    def __init__(
        self,
        layer: Any,
        arrange: Callable[[list[Any]], Any],
        target_shape: Callable[[int], Shape] | None = None,
    ):
        super().__init__(layer)
        self.arrange = arrange
        self.target_shape = target_shape

    def constants(self, inputs: list[Values]) -> list[Values]:
        return [self.arrange(inputs)]

    def tied_units(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        return [(self.arrange(inputs), outputs[0])]

    def _settings(self, wanted: Mask) -> dict[str, Any]:
        if self.target_shape is None:
            return {}
        return {"target_shape": self.target_shape(int(wanted.sum()))}


class RoutedLayerRule(Rule):
    """A layer of children and parents.

    A child that votes zero for every parent moves none where the routing
    ignores silent children. A parent for which every child votes zero keeps its
    share of them: a layer without it counts it among the routing's
    `silent_parents`.
    """

    competes = True
    # At how many places a type is a parent for the same children.
    places = 1

    def __init__(self, layer: Any):
        super().__init__(layer)
        self.loses_parents = hasattr(layer.routing, "silent_parents")

    def stays(self, outputs: int) -> bool:
        # Couplings, the output after these, have a place for each parent.
        return not self.loses_parents or outputs > 1

    def constants(self, inputs: list[Values]) -> list[Values]:
        if not self.loses_parents:
            return []
        return [np.where(self.silent(), 0.0, np.nan)]

    def producer_slices(self) -> list[Slice]:
        weight = self.layer.transformation
        parents = np.arange(weight.shape[-3])
        slices = [Slice(weight, len(weight.shape) - 3, parents)]
        for name, mark in self._routing_weights().items():
            if -2 in mark.shape:
                variable, axis = getattr(self.layer, name), mark.shape.index(-2)
                slices.append(
                    Slice(variable, axis, parents, not mark.per_child)
                )
        return slices

    def _routing_weights(self) -> dict[str, Any]:
        """Returns the routing's weights, -2 for their axis of parents."""
        marks = self.layer.routing.weights(-1, -2, -3)
        return {name: marks[name] for name in self.layer._routing_weights}

    def _of_children(self, units: Ids, axis: int = 0) -> list[Slice]:
        """Returns the weights of children, of which each is of a unit.

        Args:
            units: The unit of each child.
            axis: That of children in the transformation.
        """
        weight = self.layer.transformation
        slices = [Slice(weight, axis, units[: weight.shape[axis]])]
        for name, mark in self._routing_weights().items():
            if mark.per_child:
                variable = getattr(self.layer, name)
                slices.append(Slice(variable, 0, units, counts=False))
        return slices

    def _settings(self, wanted: Mask) -> dict[str, Any]:
        if wanted.all():
            return {}
        settings = super()._settings(wanted)
        routing = self.layer.get_config()["routing"]
        config = dict(routing["config"])
        config["silent_parents"] += self.places * int((~wanted).sum())
        return {**settings, "routing": {**routing, "config": config}}


class ClassChildren(RoutedLayerRule):
    """ClassCaps, of which single children can be left out."""

    num_units = "num_capsules"

    def __init__(self, layer: Any, shape: Shape):
        super().__init__(layer)
        self.grid = layer.children_shape(shape)

    def rebuild(
        self, taken: Mask, wanted: Mask, inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        votes = self._votes(inputs)
        if votes.all() and taken.all():
            return super().rebuild(taken, wanted, inputs)
        if not votes.any():
            votes[0, np.argmax(taken)] = True
        config = {
            **self.layer.get_config(),
            **self._settings(wanted),
            "grid": self.grid,
            "sources": np.flatnonzero(votes[:, taken]).tolist(),
            "origins": np.flatnonzero(votes).tolist(),
        }
        children = np.arange(math.prod(self.grid))
        slices = self._of_children(children)
        if self.layer.share == "all":
            slices = slices[1:]  # the matrix is everybody's
        weights = self._left(
            (self.producer_slices(), wanted),
            (slices, np.resize(votes, len(children))),
        )
        return CompactCaps.from_config(config), weights

    def consumer_slices(self) -> list[Slice]:
        if self.layer.share == "all":
            return []
        types = self.grid[-1]
        return self._of_children(np.arange(math.prod(self.grid)) % types)

    def _votes(self, inputs: list[Values]) -> Mask:
        """Returns a mask of the children that vote, `[positions, children]`.

        Children are counted as the layer's matrices are.
        """
        poses = inputs[0]
        votes = np.ones(len(poses), bool)
        if self.layer.share != "all":
            votes = any_at(self._array(self.layer.transformation) != 0, 0)
        return votes.reshape(-1, len(poses)) & (poses != 0)


class WindowChildren(RoutedLayerRule):
    """ConvCaps, of which all windows have the same types."""

    num_units = "num_types"

    def consumer_slices(self) -> list[Slice]:
        if self.layer.share_types:
            return []
        types = np.arange(self.layer.transformation.shape[2])
        positions = math.prod(self.layer.kernel_size)
        return self._of_children(np.tile(types, positions), axis=2)


class WholeMaps(RoutedLayerRule):
    """ConvCaps3D, whose parents at all positions compete.

    All types of children share the kernel: one that votes zero is a map of
    zeros.
    """

    num_units = "num_types"

    def __init__(self, layer: Any, shape: Shape):
        super().__init__(layer)
        _, rows, columns, *_ = layer.compute_output_shape(shape)
        self.places = rows * columns

    def producer_slices(self) -> list[Slice]:
        layer = self.layer
        channels = np.arange(layer.conv.kernel.shape[3])
        slices = [Slice(layer.conv.kernel, 3, channels // layer.dim)]
        if layer.bias is not None:
            slices.append(Slice(layer.bias, 0, np.arange(layer.num_types)))
        return slices


def rule_for(layer: Any, inputs: list[Shape], output: Shape) -> Rule | None:
    """Returns the rule of a layer, or `None` if it may need everything.

    Args:
        layer: A layer, or an operation.
        inputs: Shapes of the tensors that it takes.
        output: Shape of the first one that it gives.
    """
    make = _RULES.get(type(layer))  # exactly: a subclass may do anything
    return None if make is None else make(layer, inputs, output)


_Make = Callable[[Any, list[Shape], Shape], Rule | None]


def _each_if(known: Callable[[Any, Shape], bool]) -> _Make:
    """Returns what makes the rule of layers that treat each unit by itself."""
    return lambda layer, inputs, _: (
        EachUnit(layer, inputs[0]) if known(layer, inputs[0]) else None
    )


def _add(layer: Any, inputs: list[Shape], output: Shape) -> Rule | None:
    alike = len(set(inputs)) == 1 and len(output) in (3, 4, 5)
    return Sum(layer) if alike else None


def _concatenate(layer: Any, inputs: list[Shape], output: Shape) -> Rule | None:
    axis = {3: 1, 4: 3, 5: 3}.get(len(output))
    if axis is None or layer.axis % len(output) != axis:
        return None
    known = all(shape[axis] is not None for shape in inputs)
    return Rearranged(layer, np.concatenate) if known else None


def _reshape(layer: Any, inputs: list[Shape], output: Shape) -> Rule | None:
    shape = inputs[0]
    if None in shape[1:] or len(shape) < 3:
        return None
    _, rows, columns, *_ = (size or 0 for size in shape)
    if len(shape) == 5 and len(output) == 3 and shape[-1] == output[-1]:
        # A capsule map [b, h, w, t, k] to capsules [b, i, k].
        return Rearranged(
            layer,
            lambda inputs: np.tile(inputs[0], rows * columns),
            lambda count: (-1, output[-1]),
        )
    if len(shape) == 4 and output[1:] == (*shape[1:], 1):
        # A map [b, h, w, c] to capsules of one component.
        return Rearranged(
            layer,
            lambda inputs: inputs[0],
            lambda count: (rows, columns, count, 1),
        )
    return None


def _conv(layer: Any, inputs: list[Shape], output: Shape) -> Rule | None:
    known = layer.groups == 1 and layer.data_format == "channels_last"
    if not (known and _is_elementwise(layer, output)):
        return None
    return Convolution(layer, [layer], 1, "filters")


def _primary(layer: Any, inputs: list[Shape], output: Shape) -> Rule | None:
    if layer.depthwise:
        return Depthwise(layer)
    return Convolution(layer, [layer.conv], layer.dim, "num_types")


def _capsule_conv(
    layer: Any, inputs: list[Shape], output: Shape
) -> Rule | None:
    if layer.depthwise:
        return None
    of = inputs[0][-1] or 0
    return Convolution(layer, [layer.conv], layer.dim, "num_types", of)


def _class_caps(layer: Any, inputs: list[Shape], output: Shape) -> Rule | None:
    known = len(inputs) == 1 and layer.can_be_silent
    return ClassChildren(layer, inputs[0]) if known else None


def _conv_caps(layer: Any, inputs: list[Shape], output: Shape) -> Rule | None:
    known = len(inputs) == 1 and layer.routing.ignores_silent
    return WindowChildren(layer) if known else None


def _conv_caps_3d(
    layer: Any, inputs: list[Shape], output: Shape
) -> Rule | None:
    known = layer.routing.ignores_silent and layer.bias_kind != "votes"
    return WholeMaps(layer, inputs[0]) if known else None


def _is_elementwise(layer: Any, shape: Shape) -> bool:
    return getattr(layer.activation, "__name__", "") in _ELEMENTWISE


def _is_of_channels(layer: Any, shape: Shape) -> bool:
    if getattr(layer, "groups", -1) not in (-1, shape[-1]):
        return False  # a group normalisation of several channels
    return len(shape) == 4 and layer.axis in (-1, 3)


def _pads_no_types(layer: Any, shape: Shape) -> bool:
    is_map = tuple(layer.padding[-1]) == (0, 0)
    return is_map and layer.data_format == "channels_last"


_ANY = _each_if(lambda layer, shape: True)
_RULES: dict[type, _Make] = {
    CapsuleConv2D: _capsule_conv,
    ClassCaps: _class_caps,
    ConvCaps: _conv_caps,
    ConvCaps3D: _conv_caps_3d,
    # Types of parts and of matrices compete, also if no class reads them.
    PartCaps: lambda layer, *_: Convolution(
        layer, [layer.conv, layer.nothing_conv]
    ),
    PrimaryCaps: _primary,
    PrimaryMatrixCaps: lambda layer, *_: Convolution(
        layer, [layer.pose_conv, layer.activation_conv]
    ),
    # The channels of a map are the components of one capsule.
    Squash: _each_if(lambda layer, shape: len(shape) == 5),
    keras.layers.Activation: _each_if(_is_elementwise),
    keras.layers.Add: _add,
    keras.layers.BatchNormalization: _each_if(_is_of_channels),
    keras.layers.Concatenate: _concatenate,
    keras.layers.Conv2D: _conv,
    keras.layers.Dropout: _ANY,
    keras.layers.ELU: _ANY,
    keras.layers.GroupNormalization: _each_if(_is_of_channels),
    keras.layers.Identity: _ANY,
    keras.layers.LeakyReLU: _ANY,
    keras.layers.ReLU: _ANY,
    keras.layers.Reshape: _reshape,
    keras.layers.ZeroPadding3D: _each_if(_pads_no_types),
}


def apply(function: Callable[[Any], Any], units: Values) -> Values:
    """Applies a function of feature maps to constant channels."""
    pixel = ops.convert_to_tensor(np.reshape(units, (1, 1, 1, -1)), "float32")
    result = function(pixel)
    return np.ravel(np.asarray(ops.convert_to_numpy(result))).astype("float64")

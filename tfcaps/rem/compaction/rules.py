"""Rules by which layers are made smaller.

A child that votes zero for every parent moves none where the routing ignores
silent children. A parent for which every child votes zero keeps its share of
them: a layer without it counts it among the routing's `silent_parents`.

With EM routing capsules have activations: a child of activation 0 that votes
zero moves no parent, and a parent whose `beta_a` is that of an absent one is
never active, and takes no share of a child.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from tfcaps.layers import (
    CapsuleConv2D,
    ClassCaps,
    ConvCaps,
    ConvCaps3D,
    PrimaryCaps,
    PrimaryMatrixCaps,
    Squash,
)
from tfcaps.parts import PartCaps
from tfcaps.rem.compaction.units import (
    AXIS,
    Constants,
    Ids,
    Mask,
    Rebuilt,
    Rule,
    Shape,
    Slice,
    Ties,
    Values,
    any_at,
)
from tfcaps.routing import EMRouting

# Layers, and activations of layers, that look at one number at a time.
_ELEMENTWISE = (
    *("linear", "relu", "relu6", "leaky_relu", "elu", "selu", "silu", "gelu"),
    *("sigmoid", "hard_sigmoid", "tanh", "softplus", "swish"),
)
# The bias of an activation that is 0 whatever the image, even in float64.
_NEVER = -1e4


class Part(NamedTuple):
    """A convolution in a layer."""

    conv: Any
    unit: int  # how many of its channels make an output unit, 0 if none do
    fill: float = 0.0  # the bias of a unit that was left out


class Convolution(Rule):
    """Conv2D, and capsule layers that are one or two of them inside."""

    def __init__(
        self, layer: Any, parts: list[Part], num_units: str = "", of: int = 1
    ):
        """`of` is the number of channels of an input unit."""
        super().__init__(layer)
        self.parts = parts
        self.num_units = num_units
        self.of = of

    def constants(self, inputs: Constants) -> Constants:
        [(conv, unit, _)] = self.parts
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
        if unit == 1:
            return [np.where(varies, np.nan, apply(conv.activation, sums))]
        silent = ~varies & (sums == 0)
        whole = silent.reshape(-1, unit).all(axis=1)
        return [np.where(whole, 0.0, np.nan)]

    def used(self, wanted: Mask, inputs: Constants) -> Mask:
        used = super().used(wanted, inputs)
        # In half precision the bias would be rounded otherwise than the sum.
        if self.layer.compute_dtype == "float32" and all(
            part.conv.padding == "valid" for part in self.parts
        ):
            used &= np.isnan(inputs[0])  # constants become a bias
        return used

    def rebuild(self, taken: Mask, wanted: Mask, inputs: Constants) -> Rebuilt:
        layer, weights = super().rebuild(taken, wanted, inputs)
        places = {id(v): k for k, v in enumerate(self.layer.weights)}
        left_out = np.where(taken, 0.0, np.nan_to_num(inputs[0]))
        for conv, unit, _ in self.parts:
            kernel = self._array(conv.kernel)
            bias = np.repeat(left_out, self.of) @ kernel.sum(axis=(0, 1))
            if unit:
                bias = bias[np.repeat(wanted, unit)]
            if conv.use_bias:
                place = places[id(conv.bias)]
                weights[place] = (weights[place] + bias).astype(kernel.dtype)
            elif bias.any():
                settings = self._settings(wanted)
                layer = self._changed(**settings, use_bias=True)
                weights.append(bias.astype(kernel.dtype))
        return layer, weights

    def producer_slices(self) -> list[Slice]:
        slices = []
        for conv, unit, fill in self.parts:
            if unit:
                units = np.arange(conv.kernel.shape[3]) // unit
                slices.append(Slice(conv.kernel, 3, units))
                if conv.use_bias:
                    slices.append(Slice(conv.bias, 0, units, fill))
        return slices

    def consumer_slices(self) -> list[Slice]:
        kernels = [part.conv.kernel for part in self.parts]
        return [
            Slice(kernel, 2, np.arange(kernel.shape[2]) // self.of)
            for kernel in kernels
        ]


class WithActivations(Convolution):
    """PrimaryMatrixCaps: a type has poses and an activation."""

    def constants(self, inputs: Constants) -> Constants:
        silent = np.where(self.silent(), 0.0, np.nan)
        return [np.full_like(silent, np.nan), silent]

    def tied_units(self, inputs: list[Ids], outputs: list[Ids]) -> Ties:
        return [(outputs[0], outputs[1])]


class Parts(Convolution):
    """PartCaps, whose types stay: they compete, also if no class has them."""

    def stays(self, outputs: int) -> bool:
        return True

    def constants(self, inputs: Constants) -> Constants:
        return []


class Tied(Rule):
    """A layer each of whose output units is made of one unit of each input."""

    def tied_units(self, inputs: list[Ids], outputs: list[Ids]) -> Ties:
        return [(ids, outputs[0]) for ids in inputs]

    def used(self, wanted: Mask, inputs: Constants) -> Mask:
        return np.zeros(len(inputs[0]), bool)  # but those that are tied


class Depthwise(Tied):
    """Depthwise PrimaryCaps: each channel becomes one component."""

    num_units = "num_types"

    def constants(self, inputs: Constants) -> Constants:
        conv = self.layer.conv
        silent = ~any_at(self._array(conv.kernel) != 0, 2) | (inputs[0] == 0)
        if conv.use_bias:
            silent &= self._array(conv.bias) == 0
        whole = silent.reshape(-1, self.layer.dim).all(axis=1)
        return [np.where(whole, 0.0, np.nan)]

    def tied_units(self, inputs: list[Ids], outputs: list[Ids]) -> Ties:
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

    def constants(self, inputs: Constants) -> Constants:
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

    def constants(self, inputs: Constants) -> Constants:
        return [np.sum(inputs, axis=0)]


class Rearranged(Tied):
    """A layer whose output has the inputs' units in another order or shape.

    `arrange` makes of an array for each input that of the output,
    `target_shape` of the number of units the new setting of a `Reshape`.
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

    def constants(self, inputs: Constants) -> Constants:
        return [self.arrange(inputs)]

    def tied_units(self, inputs: list[Ids], outputs: list[Ids]) -> Ties:
        return [(self.arrange(inputs), outputs[0])]

    def _settings(self, wanted: Mask) -> dict[str, Any]:
        if self.target_shape is None:
            return {}
        return {"target_shape": self.target_shape(int(wanted.sum()))}


class RoutedLayerRule(Rule):
    """A layer of children and parents."""

    competes = True
    # At how many places a type is a parent for the same children.
    places = 1

    def __init__(self, layer: Any):
        super().__init__(layer)
        self.is_em = isinstance(layer.routing, EMRouting)
        self.loses_parents = hasattr(layer.routing, "silent_parents")

    def stays(self, outputs: int) -> bool:
        # Couplings, the output after these, have a place for each parent.
        return not self.loses_parents or outputs != 1 + self.is_em

    def constants(self, inputs: Constants) -> Constants:
        if not self.loses_parents:
            return []
        silent = np.where(self.silent(), 0.0, np.nan)
        return (
            [np.full_like(silent, np.nan), silent] if self.is_em else [silent]
        )

    def used(self, wanted: Mask, inputs: Constants) -> Mask:
        used = super().used(wanted, inputs)
        return used | (inputs[1] != 0) if self.is_em else used

    def tied_units(self, inputs: list[Ids], outputs: list[Ids]) -> Ties:
        tied = [(inputs[0], ids) for ids in inputs[1:]]
        if not self.stays(len(outputs)):
            tied += [(outputs[0], ids) for ids in outputs[1:]]
        return tied

    def producer_slices(self) -> list[Slice]:
        weight = self.layer.transformation
        parents = np.arange(weight.shape[-3])
        slices = [Slice(weight, len(weight.shape) - 3, parents)]
        for name, mark in self._routing_weights().items():
            if -2 in mark.shape:
                variable = getattr(self.layer, name)
                axis = mark.shape.index(-2)
                fill = self.layer.routing.absent if name == "beta_a" else 0.0
                slices.append(
                    Slice(variable, axis, parents, fill, not mark.per_child)
                )
        return slices

    def _routing_weights(self) -> dict[str, Any]:
        """Returns the routing's weights, -2 for their axis of parents."""
        marks = self.layer.routing.weights(-1, -2, -3)
        return {name: marks[name] for name in self.layer._routing_weights}

    def _of_children(self, units: Ids, axis: int = 0) -> list[Slice]:
        """Returns the weights of children, each of one of the units.

        `axis` is that of children in the transformation.
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
        if not self.is_em:
            routing = self.layer.get_config()["routing"]
            config = dict(routing["config"])
            config["silent_parents"] += self.places * int((~wanted).sum())
            settings["routing"] = {**routing, "config": config}
        return settings


class ClassChildren(RoutedLayerRule):
    """ClassCaps, whose children are those of each type at every place."""

    num_units = "num_capsules"

    def __init__(self, layer: Any, shape: Shape):
        super().__init__(layer)
        *_, self.num_types = grid = layer.children_shape(shape)
        self.num_children = math.prod(grid)

    def tied_units(self, inputs: list[Ids], outputs: list[Ids]) -> Ties:
        tied = super().tied_units(inputs, outputs)
        # Couplings, if they are returned, have a place for each child.
        children = np.resize(inputs[0], self.num_children)
        return tied + [
            (children, ids) for ids in outputs[1:] if len(ids) == len(children)
        ]

    def consumer_slices(self) -> list[Slice]:
        types = np.arange(self.num_children) % self.num_types
        slices = self._of_children(types)
        # A matrix that all children share is nobody's.
        return slices[1:] if self.layer.share == "all" else slices


class WindowChildren(RoutedLayerRule):
    """ConvCaps, of which all windows have the same types."""

    num_units = "num_types"

    def __init__(self, layer: Any):
        super().__init__(layer)
        self.loses_parents |= self.is_em

    def consumer_slices(self) -> list[Slice]:
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

    `inputs` are the shapes of what it takes, `output` is that of what it gives.
    """
    kind = type(layer)  # exactly: a subclass may do anything
    shape = inputs[0] if inputs else ()
    if kind in (ClassCaps, ConvCaps):
        return _routed(layer, inputs)
    if kind is keras.layers.Add:
        alike = len(set(inputs)) == 1 and len(shape) in AXIS
        return Sum(layer) if alike else None
    if kind is keras.layers.Concatenate:
        axis = AXIS.get(len(shape))
        if axis is None or layer.axis % len(shape) != axis:
            return None
        known = all(given[axis] is not None for given in inputs)
        return Rearranged(layer, np.concatenate) if known else None
    return _of_one(layer, shape, output) if len(inputs) == 1 else None


def _of_one(layer: Any, shape: Shape, output: Shape) -> Rule | None:
    """Returns the rule of a layer of one input."""
    kind = type(layer)
    if kind is keras.layers.Reshape:
        return _reshape(layer, shape, output)
    if kind is keras.layers.Conv2D:
        known = layer.groups == 1 and layer.data_format == "channels_last"
        if known and _is_elementwise(layer, shape):
            return Convolution(layer, [Part(layer, 1)], "filters")
    if kind is PrimaryCaps and layer.depthwise:
        return Depthwise(layer)
    if kind is PrimaryCaps:
        return Convolution(layer, [Part(layer.conv, layer.dim)], "num_types")
    if kind is CapsuleConv2D and not layer.depthwise:
        parts = [Part(layer.conv, layer.dim)]
        return Convolution(layer, parts, "num_types", shape[-1] or 0)
    if kind is PrimaryMatrixCaps:
        poses = Part(layer.pose_conv, layer.dim)
        activations = Part(layer.activation_conv, 1, _NEVER)
        return WithActivations(layer, [poses, activations], "num_types")
    if kind is PartCaps:
        parts = [Part(layer.conv, 0), Part(layer.nothing_conv, 0)]
        return Parts(layer, parts)
    if kind is ConvCaps3D:
        if layer.routing.ignores_silent and layer.bias_kind != "votes":
            return WholeMaps(layer, shape)
    if kind in _OF_EACH_UNIT and _OF_EACH_UNIT[kind](layer, shape):
        return EachUnit(layer, shape)
    return None


def _routed(layer: Any, inputs: list[Shape]) -> Rule | None:
    shape = inputs[0]
    is_class = type(layer) is ClassCaps
    if isinstance(layer.routing, EMRouting):
        # Its capsules have activations of their own.
        known = len(shape) == 5 and inputs[1:] == [shape[:-1]]
    else:
        ignores = (
            layer.can_be_silent if is_class else layer.routing.ignores_silent
        )
        known = len(inputs) == 1 and ignores
    if not known:
        return None
    return ClassChildren(layer, shape) if is_class else WindowChildren(layer)


def _reshape(layer: Any, shape: Shape, target: Shape) -> Rule | None:
    if None in shape[1:] or len(shape) < 3:
        return None
    _, rows, columns, *_ = (size or 0 for size in shape)
    if len(shape) == 5 and len(target) == 3 and shape[-1] == target[-1]:
        # A capsule map [b, h, w, t, k] to capsules [b, i, k].
        return Rearranged(
            layer,
            lambda inputs: np.tile(inputs[0], rows * columns),
            lambda count: (-1, target[-1]),
        )
    if len(shape) == 4 and target[1:] == (*shape[1:], 1):
        # A map [b, h, w, c] to capsules of one component.
        return Rearranged(
            layer,
            lambda inputs: inputs[0],
            lambda count: (rows, columns, count, 1),
        )
    return None


def _always(layer: Any, shape: Shape) -> bool:
    return True


def _is_elementwise(layer: Any, shape: Shape) -> bool:
    return getattr(layer.activation, "__name__", "") in _ELEMENTWISE


def _is_of_channels(layer: Any, shape: Shape) -> bool:
    if getattr(layer, "groups", -1) not in (-1, shape[-1]):
        return False  # a group normalisation of several channels
    return len(shape) == 4 and layer.axis in (-1, 3)


def _pads_no_types(layer: Any, shape: Shape) -> bool:
    is_map = tuple(layer.padding[-1]) == (0, 0)
    return is_map and layer.data_format == "channels_last"


# When layers treat each unit by itself.
_OF_EACH_UNIT: dict[type, Callable[[Any, Shape], bool]] = {
    # The channels of a map are the components of one capsule.
    Squash: lambda layer, shape: len(shape) == 5,
    keras.layers.Activation: _is_elementwise,
    keras.layers.BatchNormalization: _is_of_channels,
    keras.layers.Dropout: _always,
    keras.layers.ELU: _always,
    keras.layers.GroupNormalization: _is_of_channels,
    keras.layers.Identity: _always,
    keras.layers.LeakyReLU: _always,
    keras.layers.ReLU: _always,
    keras.layers.ZeroPadding3D: _pads_no_types,
}


def apply(function: Callable[[Any], Any], units: Values) -> Values:
    """Applies a function of feature maps to constant channels."""
    pixel = ops.convert_to_tensor(np.reshape(units, (1, 1, 1, -1)), "float32")
    result = function(pixel)
    return np.ravel(np.asarray(ops.convert_to_numpy(result))).astype("float64")

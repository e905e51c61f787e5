"""Rules by which layers are made smaller."""

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
    PartCaps,
    PrimaryCaps,
    PrimaryMatrixCaps,
    Squash,
)
from tfcaps.rem.compaction.routed import (
    ClassChildren,
    WholeMaps,
    WindowChildren,
)
from tfcaps.rem.compaction.units import (
    AXIS,
    Ids,
    Mask,
    Rule,
    Shape,
    Slice,
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

    def constants(self, inputs: list[Values]) -> list[Values]:
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

    def used(self, wanted: Mask, inputs: list[Values]) -> Mask:
        used = super().used(wanted, inputs)
        # In half precision the bias would be rounded otherwise than the sum.
        if self.layer.compute_dtype == "float32" and all(
            part.conv.padding == "valid" for part in self.parts
        ):
            used &= np.isnan(inputs[0])  # constants become a bias
        return used

    def rebuild(
        self, taken: Mask, wanted: Mask, inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
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

    def constants(self, inputs: list[Values]) -> list[Values]:
        silent = np.where(self.silent(), 0.0, np.nan)
        return [np.full_like(silent, np.nan), silent]

    def tied_units(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        return [(outputs[0], outputs[1])]


class Parts(Convolution):
    """PartCaps, whose types stay: they compete, also if no class has them."""

    def stays(self, outputs: int) -> bool:
        return True

    def constants(self, inputs: list[Values]) -> list[Values]:
        return []


class Tied(Rule):
    """A layer each of whose output units is made of one unit of each input."""

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


def rule_for(layer: Any, inputs: list[Shape], output: Shape) -> Rule | None:
    """Returns the rule of a layer, or `None` if it may need everything.

    `inputs` are the shapes of what it takes, `output` is that of what it gives.
    """
    kind = type(layer)  # exactly: a subclass may do anything
    if (make_joined := _JOINING.get(kind)) is not None:
        return make_joined(layer, inputs)
    if kind is keras.layers.Reshape:
        return _reshape(layer, inputs[0], output)
    if kind not in _RULES or len(inputs) != 1:
        return None
    is_known, make = _RULES[kind]
    return make(layer, inputs[0]) if is_known(layer, inputs[0]) else None


def _add(layer: Any, inputs: list[Shape]) -> Rule | None:
    alike = len(set(inputs)) == 1 and len(inputs[0]) in (3, 4, 5)
    return Sum(layer) if alike else None


def _concatenate(layer: Any, inputs: list[Shape]) -> Rule | None:
    axes = len(inputs[0])
    axis = AXIS.get(axes)
    if axis is None or layer.axis % axes != axis:
        return None
    known = all(shape[axis] is not None for shape in inputs)
    return Rearranged(layer, np.concatenate) if known else None


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


# Layers of several inputs.
_JOINING: dict[type, Callable[[Any, list[Shape]], Rule | None]] = {
    ClassCaps: _routed,
    ConvCaps: _routed,
    keras.layers.Add: _add,
    keras.layers.Concatenate: _concatenate,
}


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


def _is_plain(layer: Any, shape: Shape) -> bool:
    known = layer.groups == 1 and layer.data_format == "channels_last"
    return known and _is_elementwise(layer, shape)


def _is_of_channels(layer: Any, shape: Shape) -> bool:
    if getattr(layer, "groups", -1) not in (-1, shape[-1]):
        return False  # a group normalisation of several channels
    return len(shape) == 4 and layer.axis in (-1, 3)


def _pads_no_types(layer: Any, shape: Shape) -> bool:
    is_map = tuple(layer.padding[-1]) == (0, 0)
    return is_map and layer.data_format == "channels_last"


def _primary(layer: Any, shape: Shape) -> Rule:
    if layer.depthwise:
        return Depthwise(layer)
    return Convolution(layer, [Part(layer.conv, layer.dim)], "num_types")


def _primary_matrix(layer: Any, shape: Shape) -> Rule:
    poses = Part(layer.pose_conv, layer.dim)
    activations = Part(layer.activation_conv, 1, _NEVER)
    return WithActivations(layer, [poses, activations], "num_types")


_Make = Callable[[Any, Shape], Rule]
# When a rule holds for a layer, and the rule.
_RULES: dict[type, tuple[Callable[[Any, Shape], bool], _Make]] = {
    CapsuleConv2D: (
        lambda layer, shape: not layer.depthwise,
        lambda layer, shape: Convolution(
            layer, [Part(layer.conv, layer.dim)], "num_types", shape[-1] or 0
        ),
    ),
    ConvCaps3D: (
        lambda layer, shape: (
            layer.routing.ignores_silent and layer.bias_kind != "votes"
        ),
        WholeMaps,
    ),
    PartCaps: (
        _always,
        lambda layer, shape: Parts(
            layer, [Part(layer.conv, 0), Part(layer.nothing_conv, 0)]
        ),
    ),
    PrimaryCaps: (_always, _primary),
    PrimaryMatrixCaps: (_always, _primary_matrix),
    # The channels of a map are the components of one capsule.
    Squash: (lambda layer, shape: len(shape) == 5, EachUnit),
    keras.layers.Activation: (_is_elementwise, EachUnit),
    keras.layers.BatchNormalization: (_is_of_channels, EachUnit),
    keras.layers.Conv2D: (
        _is_plain,
        lambda layer, shape: Convolution(layer, [Part(layer, 1)], "filters"),
    ),
    keras.layers.Dropout: (_always, EachUnit),
    keras.layers.ELU: (_always, EachUnit),
    keras.layers.GroupNormalization: (_is_of_channels, EachUnit),
    keras.layers.Identity: (_always, EachUnit),
    keras.layers.LeakyReLU: (_always, EachUnit),
    keras.layers.ReLU: (_always, EachUnit),
    keras.layers.ZeroPadding3D: (_pads_no_types, EachUnit),
}


def apply(function: Callable[[Any], Any], units: Values) -> Values:
    """Applies a function of feature maps to constant channels."""
    pixel = ops.convert_to_tensor(np.reshape(units, (1, 1, 1, -1)), "float32")
    result = function(pixel)
    return np.ravel(np.asarray(ops.convert_to_numpy(result))).astype("float64")

"""Rules by which layers are made smaller."""

from collections.abc import Callable, Sequence
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
    """A convolution in a layer.

    Attributes:
        conv: The convolution.
        unit: How many of its channels make an output unit, 0 if none do.
        fill: The bias of a unit that was left out.
    """

    conv: Any
    unit: int
    fill: float = 0.0


class Convolution(Rule):
    """Conv2D, and capsule layers that are one or two of them inside."""

    def __init__(self, layer: Any, parts: list[Part], num_units: str, of: int):
        """`of` is the number of channels of an input unit."""
        super().__init__(layer)
        self.parts = parts
        self.num_units = num_units
        self.of = of

    def constants(self, inputs: list[Values]) -> list[Values | None]:
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

    def required_inputs(
        self, wanted: list[Mask], inputs: list[Values]
    ) -> list[Mask]:
        [needed] = super().required_inputs(wanted, inputs)
        # In half precision the bias would be rounded otherwise than the sum.
        if self.layer.compute_dtype == "float32" and all(
            part.conv.padding == "valid" for part in self.parts
        ):
            needed &= np.isnan(inputs[0])  # constants become a bias
        return [needed]

    def rebuild(
        self, taken: list[Mask], wanted: list[Mask], inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        layer, weights = super().rebuild(taken, wanted, inputs)
        places = {id(v): k for k, v in enumerate(self.layer.weights)}
        left_out = np.where(taken[0], 0.0, np.nan_to_num(inputs[0]))
        for conv, unit, _ in self.parts:
            kernel = self._array(conv.kernel)
            bias = np.repeat(left_out, self.of) @ kernel.sum(axis=(0, 1))
            if unit:
                bias = bias[np.repeat(wanted[0], unit)]
            if conv.use_bias:
                place = places[id(conv.bias)]
                weights[place] = (weights[place] + bias).astype(kernel.dtype)
            elif bias.any():
                settings = self._settings(wanted[0])
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

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        return [None, np.where(self._silent(), 0.0, np.nan)]

    def forced_outputs(
        self, taken: list[Mask], wanted: list[Mask]
    ) -> list[Mask]:
        return [wanted[0] | wanted[1]] * 2

    def tied_units(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        return [(outputs[0], outputs[1])]


class Parts(Convolution):
    """PartCaps, whose types stay: they compete, also if no class has them."""

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        return []

    def always_kept(self, sizes: list[int]) -> list[Mask]:
        return [np.ones(size, bool) for size in sizes]

    def unprunable(self, sizes: list[int]) -> list[Mask]:
        return self.always_kept(sizes)


class Tied(Rule):
    """A layer each of whose output units is made of certain input units.

    By default of the same unit of each input.
    """

    def tied_units(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        return [(ids, outputs[0]) for ids in inputs]

    def required_inputs(
        self, wanted: list[Mask], inputs: list[Values]
    ) -> list[Mask]:
        needed = np.zeros(sum(map(len, inputs)), bool)
        for ids, outputs in self._local(inputs, wanted):
            np.logical_or.at(needed, ids, wanted[0][outputs])
        return np.split(needed, np.cumsum([len(v) for v in inputs])[:-1])

    def forced_outputs(
        self, taken: list[Mask], wanted: list[Mask]
    ) -> list[Mask]:
        given = wanted[0].copy()
        joined = np.concatenate(taken)
        for ids, outputs in self._local(taken, wanted):
            np.logical_or.at(given, outputs, joined[ids])
        return [given]

    def _local(
        self, inputs: Sequence[Any], outputs: Sequence[Mask]
    ) -> list[tuple[Ids, Ids]]:
        """Returns the ties as places in all inputs, and in the output."""
        ends = np.cumsum([len(mask) for mask in inputs])
        ids = np.split(np.arange(ends[-1]), ends[:-1])
        return self.tied_units(ids, [np.arange(len(outputs[0]))])


class Depthwise(Tied):
    """Depthwise PrimaryCaps: each channel becomes one component."""

    num_units = "num_types"

    def constants(self, inputs: list[Values]) -> list[Values | None]:
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
    """A layer that treats each unit by itself, with a weight for each or none.

    `changes` are settings that hold for any number of units.
    """

    def __init__(self, layer: Any, shape: Shape, **changes: Any):
        super().__init__(layer)
        self.shape = shape
        self.changes = changes

    def constants(self, inputs: list[Values]) -> list[Values | None]:
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
        return self.changes

    def _call(self, inputs: Any) -> Any:
        return self.layer(inputs, training=False)


class Sum(Tied):
    """Add: a unit of the sum is made of the same unit of each input."""

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        return [np.sum(inputs, axis=0)]


class Joined(Tied):
    """Concatenate along the axis of units."""

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        return [np.concatenate(inputs)]

    def tied_units(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        return [(np.concatenate(inputs), outputs[0])]


class Flattened(Tied):
    """Reshape of a capsule map `[b, h, w, t, k]` to capsules `[b, i, k]`."""

    def __init__(self, layer: Any, shape: Shape):
        super().__init__(layer)
        self.positions = (shape[1] or 1) * (shape[2] or 1)

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        return [np.tile(inputs[0], self.positions)]

    def tied_units(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        return [(np.tile(inputs[0], self.positions), outputs[0])]

    def _settings(self, wanted: Mask) -> dict[str, Any]:
        return {"target_shape": (-1, self.layer.target_shape[-1])}


class AsCapsules(Tied):
    """Reshape of a map `[b, h, w, c]` to capsules of one component."""

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        return [np.where(inputs[0] == 0, 0.0, np.nan)]

    def _settings(self, wanted: Mask) -> dict[str, Any]:
        rows, columns, *_ = self.layer.target_shape
        return {"target_shape": (rows, columns, int(wanted.sum()), 1)}


def rule_for(
    layer: Any, inputs: list[Shape], outputs: list[Shape]
) -> Rule | None:
    """Returns the rule of a layer, or `None` if it may need everything.

    Args:
        layer: A layer, or an operation.
        inputs: Shapes of the tensors that it takes.
        outputs: Shapes of those that it gives.
    """
    if (make_joined := _JOINING.get(type(layer))) is not None:
        return make_joined(layer, inputs)
    if isinstance(getattr(layer, "routing", None), EMRouting):
        return _em(layer, inputs)
    if type(layer) is keras.layers.Reshape:
        return _reshape(layer, inputs[0], outputs[0])
    make = _RULES.get(type(layer))
    if make is None or len(inputs) != 1:
        return None
    return make(layer, inputs[0])


def _conv2d(layer: Any, shape: Shape) -> Rule | None:
    known = layer.groups == 1 and layer.data_format == "channels_last"
    if known and _is_elementwise(layer.activation):
        return Convolution(layer, [Part(layer, 1)], "filters", 1)
    return None


def _primary(layer: Any, shape: Shape) -> Rule:
    if layer.depthwise:
        return Depthwise(layer)
    return Convolution(layer, [Part(layer.conv, layer.dim)], "num_types", 1)


def _capsule_conv(layer: Any, shape: Shape) -> Rule | None:
    if layer.depthwise:
        return None
    part = Part(layer.conv, layer.dim)
    return Convolution(layer, [part], "num_types", int(shape[-1] or 0))


def _primary_matrix(layer: Any, shape: Shape) -> Rule:
    parts = [
        Part(layer.pose_conv, layer.dim),
        Part(layer.activation_conv, 1, _NEVER),
    ]
    return WithActivations(layer, parts, "num_types", 1)


def _parts(layer: Any, shape: Shape) -> Rule:
    parts = [Part(layer.conv, 0), Part(layer.nothing_conv, 0)]
    return Parts(layer, parts, "", 1)


def _squash(layer: Any, shape: Shape) -> Rule | None:
    # The channels of a map are the components of one capsule.
    return EachUnit(layer, shape) if len(shape) == 5 else None


def _activation(layer: Any, shape: Shape) -> Rule | None:
    known = _is_elementwise(layer.activation)
    return EachUnit(layer, shape) if known else None


def _batch_norm(layer: Any, shape: Shape) -> Rule | None:
    is_map = len(shape) == 4 and layer.axis in (-1, 3)
    return EachUnit(layer, shape) if is_map else None


def _group_norm(layer: Any, shape: Shape) -> Rule | None:
    is_map = len(shape) == 4 and layer.axis in (-1, 3)
    if is_map and layer.groups in (-1, shape[-1]):
        return EachUnit(layer, shape, groups=-1)
    return None


def _padding_3d(layer: Any, shape: Shape) -> Rule | None:
    is_map = tuple(layer.padding[-1]) == (0, 0)
    known = is_map and layer.data_format == "channels_last"
    return EachUnit(layer, shape) if known else None


def _class_caps(layer: Any, shape: Shape) -> Rule | None:
    return ClassChildren(layer, shape) if layer.can_be_silent else None


def _conv_caps(layer: Any, shape: Shape) -> Rule | None:
    return WindowChildren(layer) if layer.routing.ignores_silent else None


def _em(layer: Any, inputs: list[Shape]) -> Rule | None:
    """Returns the rule of capsules with activations of their own."""
    if len(inputs) != 2 or len(inputs[0]) != 5 or inputs[1] != inputs[0][:-1]:
        return None
    if type(layer) is ClassCaps:
        return ClassChildren(layer, inputs[0])
    return WindowChildren(layer) if type(layer) is ConvCaps else None


def _conv_caps_3d(layer: Any, shape: Shape) -> Rule | None:
    known = layer.routing.ignores_silent and layer.bias_kind != "votes"
    return WholeMaps(layer, shape) if known else None


def _add(layer: Any, inputs: list[Shape]) -> Rule | None:
    alike = len(set(inputs)) == 1 and len(inputs[0]) in (3, 4, 5)
    return Sum(layer) if alike else None


def _concatenate(layer: Any, inputs: list[Shape]) -> Rule | None:
    axes = len(inputs[0])
    axis = {3: 1, 4: 3, 5: 3}.get(axes)
    if axis is None or layer.axis % axes != axis:
        return None
    known = all(shape[axis] is not None for shape in inputs)
    return Joined(layer) if known else None


def _reshape(layer: Any, shape: Shape, target: Shape) -> Rule | None:
    if None in shape[1:]:
        return None
    if len(shape) == 5 and len(target) == 3 and shape[-1] == target[-1]:
        return Flattened(layer, shape)
    if len(shape) == 4 and target[1:] == (*shape[1:], 1):
        return AsCapsules(layer)
    return None


# By exact type: a subclass may do anything.
_RULES: dict[type, Callable[[Any, Shape], Rule | None]] = {
    CapsuleConv2D: _capsule_conv,
    ClassCaps: _class_caps,
    ConvCaps: _conv_caps,
    ConvCaps3D: _conv_caps_3d,
    PartCaps: _parts,
    PrimaryCaps: _primary,
    PrimaryMatrixCaps: _primary_matrix,
    Squash: _squash,
    keras.layers.Activation: _activation,
    keras.layers.BatchNormalization: _batch_norm,
    keras.layers.Conv2D: _conv2d,
    keras.layers.Dropout: EachUnit,
    keras.layers.ELU: EachUnit,
    keras.layers.GroupNormalization: _group_norm,
    keras.layers.Identity: EachUnit,
    keras.layers.LeakyReLU: EachUnit,
    keras.layers.ReLU: EachUnit,
    keras.layers.ZeroPadding3D: _padding_3d,
}

# Layers of several inputs.
_JOINING: dict[type, Callable[[Any, list[Shape]], Rule | None]] = {
    keras.layers.Add: _add,
    keras.layers.Concatenate: _concatenate,
}


def _is_elementwise(activation: Any) -> bool:
    return getattr(activation, "__name__", "") in _ELEMENTWISE


def apply(function: Callable[[Any], Any], units: Values) -> Values:
    """Applies a function of feature maps to constant channels."""
    pixel = ops.convert_to_tensor(np.reshape(units, (1, 1, 1, -1)), "float32")
    result = function(pixel)
    return np.ravel(np.asarray(ops.convert_to_numpy(result))).astype("float64")

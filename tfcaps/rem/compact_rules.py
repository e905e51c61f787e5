"""What each kind of layer needs of its input, and what is left of it.

Units are the channels of a feature map `[b, h, w, c]` and the types of a
capsule map `[b, h, w, t, k]`; other tensors have none.
"""

import abc
import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps.layers import (
    CapsuleConv2D,
    ClassCaps,
    CompactCaps,
    ConvCaps,
    PrimaryCaps,
    PrimaryMatrixCaps,
    Squash,
)

Mask = NDArray[np.bool_]
# Of units; NaN where the value is not the same everywhere in every image.
Values = NDArray[np.floating]
# Of a layer's input.
Shape = tuple[int | None, ...]

# Layers, and activations of layers, that look at one number at a time.
_ELEMENTWISE = (
    *("linear", "relu", "relu6", "leaky_relu", "elu", "selu", "silu", "gelu"),
    *("sigmoid", "hard_sigmoid", "tanh", "softplus", "swish"),
)


class Rule(abc.ABC):
    """How the units of a layer's output depend on those of its input."""

    # Whether output units can be left out.
    shrinks = True

    def __init__(self, layer: Any):
        self.layer = layer

    def constants(self, inputs: Values) -> Values | None:
        """Returns the values of constant output units, NaN for the others."""
        del inputs
        return None

    @abc.abstractmethod
    def needs(self, wanted: Mask, inputs: Values) -> Mask:
        """Returns the input units that `wanted` output units depend on."""

    def follows(self, taken: Mask, wanted: Mask) -> Mask:
        """Returns the output units that come with `taken` input units."""
        del taken
        return wanted

    @abc.abstractmethod
    def shrunk(
        self, taken: Mask, wanted: Mask, inputs: Values
    ) -> tuple[Any, list[Any]]:
        """Returns a layer for the units that are left, and its weights."""

    def _changed(self, **changes: Any) -> Any:
        """Returns a layer with this one's config, but for the changes."""
        config = {**self.layer.get_config(), **changes}
        return type(self.layer).from_config(config)

    def _array(self, variable: Any) -> NDArray[Any]:
        return np.asarray(ops.convert_to_numpy(variable))


class _Convolution(Rule):
    """Conv2D, and capsule layers that are one or two of them inside."""

    def __init__(
        self, layer: Any, convs: list[Any], num_units: str, unit: int, of: int
    ):
        """`unit` and `of` are the channels of an output and an input unit."""
        super().__init__(layer)
        self.convs = convs
        self.num_units = num_units
        self.unit = unit
        self.of = of
        self.shrinks = len(convs) == 1

    def constants(self, inputs: Values) -> Values | None:
        if len(self.convs) > 1:
            return None
        [conv] = self.convs
        inputs = np.repeat(inputs, self.of)
        kernel = self._array(conv.kernel)
        reached = _any(kernel, 0, 1)
        not_known = np.isnan(inputs)
        if conv.padding != "valid":
            not_known |= inputs != 0  # zeros surround the map
        varies = reached[not_known].any(axis=0)
        sums = self._bias(conv) + np.nan_to_num(inputs) @ kernel.sum(
            axis=(0, 1)
        )
        if self.unit == 1:
            return np.where(varies, np.nan, _apply(conv.activation, sums))
        silent = ~varies & (sums == 0)
        return np.where(silent.reshape(-1, self.unit).all(axis=1), 0.0, np.nan)

    def needs(self, wanted: Mask, inputs: Values) -> Mask:
        channels = np.repeat(wanted, self.unit)
        needed = np.zeros(len(inputs) * self.of, bool)
        for conv in self.convs:
            reached = _any(self._array(conv.kernel), 0, 1)
            if self.shrinks:
                reached = reached[:, channels]
            needed |= reached.any(axis=1)
        folded = inputs == 0
        if self.convs[0].padding == "valid" and self._is_float32:
            folded = ~np.isnan(inputs)
        return needed.reshape(-1, self.of).any(axis=1) & ~folded

    def shrunk(
        self, taken: Mask, wanted: Mask, inputs: Values
    ) -> tuple[Any, list[Any]]:
        rows = np.repeat(taken, self.of)
        channels = np.repeat(wanted, self.unit)
        left_out = np.repeat(
            np.where(taken, 0.0, np.nan_to_num(inputs)), self.of
        )
        weights = []
        for conv in self.convs:
            kernel = self._array(conv.kernel)
            bias = self._bias(conv) + left_out @ kernel.sum(axis=(0, 1))
            if not self.shrinks:
                channels = np.ones(len(bias), bool)
            weights.append(kernel[:, :, rows][..., channels])
            if conv.use_bias or bias[channels].any():
                weights.append(bias[channels].astype(kernel.dtype))
        changes: dict[str, Any] = {}
        if self.shrinks:
            changes[self.num_units] = int(wanted.sum())
            changes["use_bias"] = len(weights) == 2
        return self._changed(**changes), weights

    def _bias(self, conv: Any) -> NDArray[Any]:
        if not conv.use_bias:
            return np.zeros(conv.kernel.shape[-1])
        return self._array(conv.bias).astype("float64")

    @property
    def _is_float32(self) -> bool:
        # In half precision the bias would be rounded otherwise than the sum.
        return bool(self.layer.compute_dtype == "float32")


class _Depthwise(Rule):
    """Depthwise PrimaryCaps: each channel becomes one component."""

    def constants(self, inputs: Values) -> Values | None:
        conv = self.layer.conv
        silent = ~_any(self._array(conv.kernel), 0, 1, 3) | (inputs == 0)
        if conv.use_bias:
            silent &= self._array(conv.bias) == 0
        whole = silent.reshape(-1, self.layer.dim).all(axis=1)
        return np.where(whole, 0.0, np.nan)

    def needs(self, wanted: Mask, inputs: Values) -> Mask:
        return np.repeat(wanted, self.layer.dim)

    def follows(self, taken: Mask, wanted: Mask) -> Mask:
        return wanted | taken.reshape(-1, self.layer.dim).any(axis=1)

    def shrunk(
        self, taken: Mask, wanted: Mask, inputs: Values
    ) -> tuple[Any, list[Any]]:
        kernel, *bias = self.layer.get_weights()
        weights = [kernel[:, :, taken], *(array[taken] for array in bias)]
        return self._changed(num_types=int(wanted.sum())), weights


class _EachUnit(Rule):
    """A layer that treats each unit by itself, with a weight for each or none.

    `changes` are settings that hold for any number of units.
    """

    def __init__(self, layer: Any, shape: Shape, **changes: Any):
        super().__init__(layer)
        self.shape = shape
        self.changes = changes

    def constants(self, inputs: Values) -> Values | None:
        if len(self.shape) == 4:
            outputs = _apply(self._call, inputs)
            return np.where(np.isnan(inputs), np.nan, outputs)
        if np.any(ops.convert_to_numpy(self._call(ops.zeros((1,) * 5)))):
            return None
        return np.where(inputs == 0, 0.0, np.nan)

    def needs(self, wanted: Mask, inputs: Values) -> Mask:
        return wanted

    def follows(self, taken: Mask, wanted: Mask) -> Mask:
        return wanted | taken

    def shrunk(
        self, taken: Mask, wanted: Mask, inputs: Values
    ) -> tuple[Any, list[Any]]:
        weights = [array[wanted] for array in self.layer.get_weights()]
        return self._changed(**self.changes), weights

    def _call(self, inputs: Any) -> Any:
        return self.layer(inputs, training=False)


class _Children(Rule):
    """A layer of parents; its children may be silent."""

    shrinks = False

    def _votes(self, inputs: Values) -> Mask:
        """Returns which of the children vote, `[positions, children]`.

        Children are counted as the layer's matrices are.
        """
        raise NotImplementedError

    def needs(self, wanted: Mask, inputs: Values) -> Mask:
        return _any(self._votes(inputs), 0)[: len(inputs)]

    def _weights(
        self, kept: Mask, transformation: NDArray[Any], positions: int
    ) -> list[Any]:
        """Returns all weights, those of each child for the kept ones."""
        layer = self.layer
        children = positions * len(kept)
        kinds = layer.routing.weights(children, layer._num_parents, layer.dim)
        weights = [transformation]
        for name in layer._routing_weights:
            array = self._array(getattr(layer, name))
            if kinds[name].per_child:
                rest = array.shape[1:]
                array = array.reshape(positions, -1, *rest)[:, kept]
                array = array.reshape(-1, *rest)
            weights.append(array)
        return weights


class _ClassChildren(_Children):
    """ClassCaps."""

    def __init__(self, layer: Any, shape: Shape):
        super().__init__(layer)
        self.grid = layer.children_shape(shape)

    def _votes(self, inputs: Values) -> Mask:
        weight = self._array(self.layer.transformation)
        votes = _any(weight, 1, 2, 3)
        if len(inputs):
            votes = votes.reshape(-1, len(inputs)) & (inputs != 0)
        return np.atleast_2d(votes)

    def shrunk(
        self, taken: Mask, wanted: Mask, inputs: Values
    ) -> tuple[Any, list[Any]]:
        layer = self.layer
        votes = self._votes(inputs)
        if not len(taken):
            taken = np.ones(votes.shape[1], bool)
        if votes.all() and taken.all():
            return self._changed(), layer.get_weights()
        if not votes.any():
            votes[0, np.argmax(taken)] = True
        sources = np.flatnonzero(votes[:, taken])
        kept = votes.ravel()
        config = {
            **layer.get_config(),
            "grid": self.grid,
            "sources": [int(source) for source in sources],
            "origins": [int(origin) for origin in np.flatnonzero(kept)],
        }
        transformation = self._array(layer.transformation)[kept]
        positions = math.prod(self.grid) // len(kept)
        weights = self._weights(kept, transformation, positions)
        return CompactCaps.from_config(config), weights


class _WindowChildren(_Children):
    """ConvCaps, of which all windows have the same types."""

    def _votes(self, inputs: Values) -> Mask:
        weight = self._array(self.layer.transformation)
        return _any(weight, 0, 1, 3, 4, 5)[None] & (inputs != 0)

    def shrunk(
        self, taken: Mask, wanted: Mask, inputs: Values
    ) -> tuple[Any, list[Any]]:
        transformation = self._array(self.layer.transformation)[:, :, taken]
        positions = math.prod(self.layer.kernel_size)
        weights = self._weights(taken, transformation, positions)
        return self._changed(), weights


def rule_for(layer: Any, shape: Shape) -> Rule | None:
    """Returns the rule of a layer, or `None` if it may need everything."""
    make = _RULES.get(type(layer))
    return make(layer, shape) if make is not None else None


def _conv2d(layer: Any, shape: Shape) -> Rule | None:
    known = layer.groups == 1 and layer.data_format == "channels_last"
    if known and _is_elementwise(layer.activation):
        return _Convolution(layer, [layer], "filters", 1, 1)
    return None


def _primary(layer: Any, shape: Shape) -> Rule:
    if layer.depthwise:
        return _Depthwise(layer)
    return _Convolution(layer, [layer.conv], "num_types", layer.dim, 1)


def _capsule_conv(layer: Any, shape: Shape) -> Rule | None:
    if layer.depthwise:
        return None
    of = int(shape[-1] or 0)
    return _Convolution(layer, [layer.conv], "num_types", layer.dim, of)


def _primary_matrix(layer: Any, shape: Shape) -> Rule:
    convs = [layer.pose_conv, layer.activation_conv]
    return _Convolution(layer, convs, "num_types", layer.dim, 1)


def _squash(layer: Any, shape: Shape) -> Rule | None:
    # The channels of a map are the components of one capsule.
    return _EachUnit(layer, shape) if len(shape) == 5 else None


def _activation(layer: Any, shape: Shape) -> Rule | None:
    known = _is_elementwise(layer.activation)
    return _EachUnit(layer, shape) if known else None


def _batch_norm(layer: Any, shape: Shape) -> Rule | None:
    is_map = len(shape) == 4 and layer.axis in (-1, 3)
    return _EachUnit(layer, shape) if is_map else None


def _group_norm(layer: Any, shape: Shape) -> Rule | None:
    is_map = len(shape) == 4 and layer.axis in (-1, 3)
    if is_map and layer.groups in (-1, shape[-1]):
        return _EachUnit(layer, shape, groups=-1)
    return None


def _padding_3d(layer: Any, shape: Shape) -> Rule | None:
    is_map = tuple(layer.padding[-1]) == (0, 0)
    known = is_map and layer.data_format == "channels_last"
    return _EachUnit(layer, shape) if known else None


def _class_caps(layer: Any, shape: Shape) -> Rule | None:
    known = layer.can_be_silent and layer.share != "all"
    return _ClassChildren(layer, shape) if known else None


def _conv_caps(layer: Any, shape: Shape) -> Rule | None:
    known = layer.routing.ignores_silent and not layer.share_types
    return _WindowChildren(layer) if known else None


# By exact type: a subclass may do anything.
_RULES: dict[type, Callable[[Any, Shape], Rule | None]] = {
    CapsuleConv2D: _capsule_conv,
    ClassCaps: _class_caps,
    ConvCaps: _conv_caps,
    PrimaryCaps: _primary,
    PrimaryMatrixCaps: _primary_matrix,
    Squash: _squash,
    keras.layers.Activation: _activation,
    keras.layers.BatchNormalization: _batch_norm,
    keras.layers.Conv2D: _conv2d,
    keras.layers.Dropout: _EachUnit,
    keras.layers.ELU: _EachUnit,
    keras.layers.GroupNormalization: _group_norm,
    keras.layers.Identity: _EachUnit,
    keras.layers.LeakyReLU: _EachUnit,
    keras.layers.ReLU: _EachUnit,
    keras.layers.ZeroPadding3D: _padding_3d,
}


def _any(weight: NDArray[Any], *axes: int) -> Mask:
    """Returns where something along the axes is not zero."""
    return np.asarray(weight.any(axis=axes))


def _is_elementwise(activation: Any) -> bool:
    return getattr(activation, "__name__", "") in _ELEMENTWISE


def _apply(function: Callable[[Any], Any], units: Values) -> Values:
    """Returns what a function of feature maps makes of constant channels."""
    pixel = ops.convert_to_tensor(np.reshape(units, (1, 1, 1, -1)), "float32")
    result = function(pixel)
    return np.ravel(np.asarray(ops.convert_to_numpy(result))).astype("float64")

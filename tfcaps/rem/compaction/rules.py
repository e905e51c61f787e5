"""Rules by which layers are made smaller."""

from collections.abc import Callable
from typing import Any

import keras

from tfcaps.layers import (
    CapsuleConv2D,
    ClassCaps,
    CompactCaps,
    ConstellationCaps,
    ConvCaps,
    ConvCaps3D,
    PartCaps,
    PrimaryCaps,
    PrimaryMatrixCaps,
    Squash,
)
from tfcaps.rem.compaction.joins import (
    AsCapsules,
    Constellations,
    Flattened,
    Joined,
    PartsConvolution,
    Sum,
    WholeMaps,
)
from tfcaps.rem.compaction.routed import (
    ClassChildren,
    CompactChildren,
    EMChildren,
    EMCompactChildren,
    EMWindows,
    WindowChildren,
)
from tfcaps.rem.compaction.units import (
    Convolution,
    Depthwise,
    EachUnit,
    MatrixConvolution,
    Rule,
    Shape,
)
from tfcaps.routing import EMRouting

# Layers, and activations of layers, that look at one number at a time.
_ELEMENTWISE = (
    *("linear", "relu", "relu6", "leaky_relu", "elu", "selu", "silu", "gelu"),
    *("sigmoid", "hard_sigmoid", "tanh", "softplus", "swish"),
)


def rule_for(
    layer: Any, inputs: list[Shape], outputs: list[Shape]
) -> Rule | None:
    """Returns the rule of a layer, or `None` if it may need everything.

    Args:
        layer: A layer, or an operation.
        inputs: Shapes of the tensors that it takes.
        outputs: Shapes of those that it gives.
    """
    if type(layer) is ConstellationCaps and len(inputs) == 2:
        return Constellations(layer)
    if isinstance(getattr(layer, "routing", None), EMRouting):
        return _em(layer, inputs)
    if (make_joined := _JOINING.get(type(layer))) is not None:
        return make_joined(layer, inputs)
    if type(layer) is keras.layers.Reshape:
        return _reshape(layer, inputs[0], outputs[0])
    make = _RULES.get(type(layer))
    if make is None or len(inputs) != 1:
        return None
    return make(layer, inputs[0])


def _conv2d(layer: Any, shape: Shape) -> Rule | None:
    known = layer.groups == 1 and layer.data_format == "channels_last"
    if known and _is_elementwise(layer.activation):
        return Convolution(layer, [layer], "filters", 1, 1)
    return None


def _primary(layer: Any, shape: Shape) -> Rule:
    if layer.depthwise:
        return Depthwise(layer)
    return Convolution(layer, [layer.conv], "num_types", layer.dim, 1)


def _capsule_conv(layer: Any, shape: Shape) -> Rule | None:
    if layer.depthwise:
        return None
    of = int(shape[-1] or 0)
    return Convolution(layer, [layer.conv], "num_types", layer.dim, of)


def _primary_matrix(layer: Any, shape: Shape) -> Rule:
    convs = [layer.pose_conv, layer.activation_conv]
    return MatrixConvolution(layer, convs, "num_types", layer.dim, 1)


def _parts(layer: Any, shape: Shape) -> Rule:
    convs = [layer.conv, layer.nothing_conv]
    return PartsConvolution(layer, convs, "num_types", 1, 1)


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


def _compact_caps(layer: Any, shape: Shape) -> Rule | None:
    return CompactChildren(layer, shape) if layer.can_be_silent else None


def _conv_caps(layer: Any, shape: Shape) -> Rule | None:
    known = layer.routing.ignores_silent
    return WindowChildren(layer, shape) if known else None


def _em(layer: Any, inputs: list[Shape]) -> Rule | None:
    """Returns the rule of capsules with activations of their own."""
    make = _OF_EM.get(type(layer))
    if make is None or len(inputs) != 2:
        return None
    poses, activations = inputs
    if len(poses) != 5 or activations != poses[:-1]:
        return None
    return make(layer, poses)


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
_OF_EM: dict[type, Callable[[Any, Shape], Rule]] = {
    ClassCaps: EMChildren,
    CompactCaps: EMCompactChildren,
    ConvCaps: EMWindows,
}
_RULES: dict[type, Callable[[Any, Shape], Rule | None]] = {
    CapsuleConv2D: _capsule_conv,
    ClassCaps: _class_caps,
    CompactCaps: _compact_caps,
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

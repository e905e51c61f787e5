"""Rules by which layers are made smaller."""

from collections.abc import Callable
from typing import Any

import keras

from tfcaps.layers import (
    CapsuleConv2D,
    ClassCaps,
    ConvCaps,
    PrimaryCaps,
    PrimaryMatrixCaps,
    Squash,
)
from tfcaps.rem.compaction.children import ClassChildren, WindowChildren
from tfcaps.rem.compaction.units import (
    Convolution,
    Depthwise,
    EachUnit,
    Rule,
    Shape,
)

# Layers, and activations of layers, that look at one number at a time.
_ELEMENTWISE = (
    *("linear", "relu", "relu6", "leaky_relu", "elu", "selu", "silu", "gelu"),
    *("sigmoid", "hard_sigmoid", "tanh", "softplus", "swish"),
)


def rule_for(layer: Any, shape: Shape) -> Rule | None:
    """Returns the rule of a layer, or `None` if it may need everything."""
    make = _RULES.get(type(layer))
    return make(layer, shape) if make is not None else None


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
    return Convolution(layer, convs, "num_types", layer.dim, 1)


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
    known = layer.can_be_silent and layer.share != "all"
    return ClassChildren(layer, shape) if known else None


def _conv_caps(layer: Any, shape: Shape) -> Rule | None:
    known = layer.routing.ignores_silent and not layer.share_types
    return WindowChildren(layer) if known else None


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
    keras.layers.Dropout: EachUnit,
    keras.layers.ELU: EachUnit,
    keras.layers.GroupNormalization: _group_norm,
    keras.layers.Identity: EachUnit,
    keras.layers.LeakyReLU: EachUnit,
    keras.layers.ReLU: EachUnit,
    keras.layers.ZeroPadding3D: _padding_3d,
}


def _is_elementwise(activation: Any) -> bool:
    return getattr(activation, "__name__", "") in _ELEMENTWISE

"""Receptive fields of single layers."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from tfcaps.layers import (
    ClassCaps,
    ConvCaps,
    ConvCaps3D,
    Length,
    PartCaps,
    PrimaryCaps,
    PrimaryMatrixCaps,
    Squash,
)
from tfcaps.rem.parse.fields import (
    Fields,
    concatenated,
    merged,
    sees_all,
    windows,
)
from tfcaps.routing import EMRouting

# From a layer, the fields of its inputs, and the shape of its output without
# the batch, to the fields of that; `None` if it is a case that is not known.
Rule = Callable[[Any, list[Fields], Sequence[int]], Fields | None]


def fields_after(
    layer: Any, inputs: list[Fields], shape: Sequence[int]
) -> Fields | None:
    """Returns the fields of a layer's output, `None` of unknown layers.

    Args:
        layer: A layer, or an operation of `keras.ops`.
        inputs: Fields of its inputs.
        shape: Shape of its output without the batch.
    """
    if not isinstance(layer, keras.Layer):
        rule = _OPERATIONS.get(type(layer).__name__)
        return rule(layer, inputs, shape) if rule else None
    for kind in type(layer).__mro__:
        if kind in _LAYERS:
            return _LAYERS[kind](layer, inputs, shape)
    return None


def _same(layer: Any, inputs: list[Fields], shape: Sequence[int]) -> Fields:
    del layer, shape
    return inputs[0]


def _convolution(
    layer: Any, inputs: list[Fields], shape: Sequence[int]
) -> Fields | None:
    if layer.padding not in ("valid", "same"):
        return None
    fields = inputs[0]
    axes = _spatial(layer, len(shape))
    rest = set(range(len(shape))) - set(axes)
    fields = fields.united(rest, fields.shape)
    return _slid(
        fields, axes, shape, layer.kernel_size, layer.strides, layer.padding,
        layer.dilation_rate,
    )  # fmt: skip


def _pooling(
    layer: Any, inputs: list[Fields], shape: Sequence[int]
) -> Fields | None:
    axes = _spatial(layer, len(shape))
    return _slid(
        inputs[0], axes, shape, layer.pool_size, layer.strides, layer.padding
    )


def _slid(
    fields: Fields,
    axes: Sequence[int],
    shape: Sequence[int],
    kernel: Any,
    strides: Any,
    padding: str,
    dilation: Any = 1,
) -> Fields:
    """Returns the fields of windows along several axes."""
    every = zip(
        axes,
        *(_each(value, len(axes)) for value in (kernel, strides, dilation)),
        strict=True,
    )
    for axis, size, stride, rate in every:
        fields = windows(
            fields, axis, size, stride, dilation=rate, padding=padding
        )
    return Fields(shape, fields.bounds, fields.centres, fields.steps)


def _each(value: Any, count: int) -> tuple[int, ...]:
    return (value,) * count if isinstance(value, int) else tuple(value)


def _spatial(layer: Any, axes: int) -> list[int]:
    """Returns the axes of a map that are no channels, without the batch."""
    first = layer.data_format == "channels_first"
    return list(range(1, axes) if first else range(axes - 1))


def _map_of(inputs: list[Fields]) -> Fields:
    """Returns the union of what is at each position, `[h, w]`."""
    maps = []
    for fields in inputs:
        more = range(2, len(fields.shape))
        maps.append(fields.united(more, fields.shape).without(more))
    return merged(maps, maps[0].shape)


def _capsule_map(
    layer: Any, inputs: list[Fields], shape: Sequence[int]
) -> Fields:
    """PrimaryCaps and CapsuleConv2D, ConvCaps and ConvCaps3D."""
    strides = getattr(layer, "strides", 1)
    fields = _slid(
        _map_of(inputs), (0, 1), shape[:2], layer.kernel_size, strides,
        layer.padding,
    )  # fmt: skip
    return fields.extended(shape)


def _part_caps(
    layer: Any, inputs: list[Fields], shape: Sequence[int]
) -> Fields:
    fields = _map_of(inputs)
    for axis in (0, 1):  # of all in the window only one part stays
        fields = windows(fields, axis, layer.window, 1, padding="same")
    return fields.extended(shape)


def _conv_caps(
    layer: Any, inputs: list[Fields], shape: Sequence[int]
) -> Fields:
    fields = _capsule_map(layer, inputs, shape)
    if not isinstance(layer.routing, EMRouting):
        return fields
    # The parents of all windows that hold a child compete for it, so that each
    # further iteration looks at the windows that share a child with this one.
    reach = [
        (size - 1) // stride
        for size, stride in zip(layer.kernel_size, layer.strides, strict=True)
    ]
    for _ in range(layer.routing.iterations - 1):
        for axis, far in enumerate(reach):
            fields = windows(fields, axis, 2 * far + 1, 1, padding="same")
    return fields


def _conv_caps_3d(
    layer: Any, inputs: list[Fields], shape: Sequence[int]
) -> Fields:
    # Parents at all positions compete for a child.
    return sees_all([_capsule_map(layer, inputs, shape)], shape)


def _class_caps(
    layer: Any, inputs: list[Fields], shape: Sequence[int]
) -> Fields:
    del layer
    return sees_all(inputs, shape, places=False)


def _mixed(layer: Any, inputs: list[Fields], shape: Sequence[int]) -> Fields:
    """Layers whose elements along `axis` depend on each other."""
    axis = getattr(layer, "axis", -1)
    axes = [axis] if isinstance(axis, int) else list(axis)
    count = len(shape) + 1
    return inputs[0].united([(a % count) - 1 for a in axes], shape)


def _last_mixed(
    layer: Any, inputs: list[Fields], shape: Sequence[int]
) -> Fields:
    """Dense, and lengths of capsules with the axis kept."""
    del layer
    return inputs[0].united([len(inputs[0].shape) - 1], shape)


def _length(layer: Any, inputs: list[Fields], shape: Sequence[int]) -> Fields:
    del layer
    last = len(shape)
    return inputs[0].united([last], (*shape, 1)).without([last])


def _group_norm(
    layer: Any, inputs: list[Fields], shape: Sequence[int]
) -> Fields:
    del layer  # its means are those of the whole map
    return sees_all(inputs, shape)


def _global_pooling(
    layer: Any, inputs: list[Fields], shape: Sequence[int]
) -> Fields:
    fields = inputs[0]
    axes = _spatial(layer, len(fields.shape))
    ones = [1 if a in axes else n for a, n in enumerate(fields.shape)]
    fields = fields.united(axes, ones)
    return fields if layer.keepdims else fields.without(axes)


def _merge(
    layer: Any, inputs: list[Fields], shape: Sequence[int]
) -> Fields | None:
    del layer
    same = all(len(fields.shape) == len(shape) for fields in inputs)
    return merged(inputs, shape) if same else None


def _concatenate(
    layer: Any, inputs: list[Fields], shape: Sequence[int]
) -> Fields:
    return concatenated(inputs, layer.axis % (len(shape) + 1) - 1)


def _reshape(layer: Any, inputs: list[Fields], shape: Sequence[int]) -> Fields:
    del layer
    return inputs[0].reshaped(shape)


def _flatten(
    layer: Any, inputs: list[Fields], shape: Sequence[int]
) -> Fields | None:
    first = layer.data_format == "channels_first" and len(inputs[0].shape) > 1
    return None if first else inputs[0].reshaped(shape)


def _permute(layer: Any, inputs: list[Fields], shape: Sequence[int]) -> Fields:
    del shape
    return inputs[0].permuted([axis - 1 for axis in layer.dims])


def _padding(layer: Any, inputs: list[Fields], shape: Sequence[int]) -> Fields:
    return _shifted(layer, layer.padding, inputs[0], shape, -1)


def _cropping(layer: Any, inputs: list[Fields], shape: Sequence[int]) -> Fields:
    return _shifted(layer, layer.cropping, inputs[0], shape, 1)


def _shifted(
    layer: Any, sides: Any, fields: Fields, shape: Sequence[int], sign: int
) -> Fields:
    axes = _spatial(layer, len(shape))
    for axis, (before, _) in zip(axes, sides, strict=True):
        places = np.arange(shape[axis]) + sign * before
        fields = fields.gathered(axis, places[:, None], places, 1.0)
    return fields


def _up_sampling(
    layer: Any, inputs: list[Fields], shape: Sequence[int]
) -> Fields | None:
    axes = _spatial(layer, len(shape))
    return _resized(inputs[0], axes, shape, layer.interpolation)


def _resizing(
    layer: Any, inputs: list[Fields], shape: Sequence[int]
) -> Fields | None:
    only_scales = not (
        layer.antialias
        or layer.crop_to_aspect_ratio
        or layer.pad_to_aspect_ratio
    )
    axes = _spatial(layer, len(shape))
    return (
        _resized(inputs[0], axes, shape, layer.interpolation)
        if only_scales
        else None
    )


def _resized(
    fields: Fields, axes: Sequence[int], shape: Sequence[int], how: str
) -> Fields | None:
    if how not in ("nearest", "bilinear"):
        return None
    for axis in axes:
        old, new = fields.shape[axis], shape[axis]
        positions = (np.arange(new) + 0.5) * old / new - 0.5
        below = np.floor(positions + (0.5 if how == "nearest" else 0.0))
        above = np.ceil(positions) if how == "bilinear" else below
        taps = np.stack([below, above], axis=-1).clip(0, old - 1).astype(int)
        fields = fields.gathered(axis, taps, positions, old / new)
    return fields


_layers = keras.layers
_LAYERS: dict[type, Rule] = {
    **dict.fromkeys(
        (
            _layers.Conv1D,
            _layers.Conv2D,
            _layers.Conv3D,
            _layers.DepthwiseConv2D,
            _layers.SeparableConv2D,
        ),
        _convolution,
    ),
    **dict.fromkeys(
        (
            _layers.AveragePooling2D,
            _layers.AveragePooling3D,
            _layers.MaxPooling2D,
            _layers.MaxPooling3D,
        ),
        _pooling,
    ),
    **dict.fromkeys(
        (
            _layers.Activation,
            _layers.ActivityRegularization,
            _layers.AlphaDropout,
            _layers.BatchNormalization,
            _layers.Dropout,
            _layers.ELU,
            _layers.GaussianDropout,
            _layers.GaussianNoise,
            _layers.Identity,
            _layers.LeakyReLU,
            _layers.Normalization,
            _layers.PReLU,
            _layers.RandomBrightness,
            _layers.RandomContrast,
            _layers.RandomFlip,
            _layers.RandomRotation,
            _layers.RandomTranslation,
            _layers.RandomZoom,
            _layers.ReLU,
            _layers.Rescaling,
            _layers.SpatialDropout2D,
        ),
        _same,
    ),
    **dict.fromkeys(
        (
            _layers.LayerNormalization,
            _layers.RMSNormalization,
            _layers.Softmax,
            _layers.UnitNormalization,
        ),
        _mixed,
    ),
    **dict.fromkeys(
        (
            _layers.Add,
            _layers.Average,
            _layers.Maximum,
            _layers.Minimum,
            _layers.Multiply,
            _layers.Subtract,
        ),
        _merge,
    ),
    **dict.fromkeys(
        (_layers.GlobalAveragePooling2D, _layers.GlobalMaxPooling2D),
        _global_pooling,
    ),
    **dict.fromkeys((_layers.ZeroPadding2D, _layers.ZeroPadding3D), _padding),
    **dict.fromkeys((_layers.Cropping2D, _layers.Cropping3D), _cropping),
    _layers.Concatenate: _concatenate,
    _layers.Dense: _last_mixed,
    _layers.Flatten: _flatten,
    _layers.GroupNormalization: _group_norm,
    _layers.Permute: _permute,
    _layers.Reshape: _reshape,
    _layers.Resizing: _resizing,
    _layers.UpSampling2D: _up_sampling,
    ClassCaps: _class_caps,
    ConvCaps: _conv_caps,
    ConvCaps3D: _conv_caps_3d,
    Length: _length,
    PartCaps: _part_caps,
    PrimaryCaps: _capsule_map,
    PrimaryMatrixCaps: _capsule_map,
    Squash: _last_mixed,
}
_OPERATIONS: dict[str, Rule] = {
    **dict.fromkeys(
        ("Add", "Divide", "Maximum", "Minimum", "Multiply", "Subtract"), _merge
    ),
    **dict.fromkeys(
        ("Abs", "Cast", "Negative", "Relu", "Sigmoid", "Sqrt", "Square"),
        _same,
    ),
}

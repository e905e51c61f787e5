"""The units of layers of Keras; our own say theirs, see `LayerUnits`."""

from typing import Any

import numpy as np
from keras import layers, ops

from tfcaps.layers import units

# The axis of the units of a tensor, by the number of its axes.
AXIS = {3: 1, 4: 3, 5: 3}

# Activations that look at one number at a time.
_ELEMENTWISE = (
    *("linear", "relu", "relu6", "leaky_relu", "elu", "selu", "silu", "gelu"),
    *("sigmoid", "hard_sigmoid", "tanh", "softplus", "swish"),
)


def units_of(layer: Any, inputs: list[units.Shape], output: units.Shape) -> Any:
    """Returns the `LayerUnits`, or `None` if a layer may need all its units.

    `inputs` are the shapes of what it takes, `output` is that of what it gives.
    """
    kind = type(layer)  # exactly: a subclass may do anything
    if "layer_units" in vars(kind):
        return layer.layer_units(inputs)
    shape = inputs[0] if inputs else ()
    axis = AXIS.get(len(shape))
    if axis is None:
        return None
    if kind is layers.Add and len(set(inputs)) == 1:
        return units.LayerUnits(
            sources=lambda x: x, value=lambda x: np.sum(x, 0)
        )
    if kind is layers.Concatenate and output[axis] is not None:
        if layer.axis % len(shape) == axis:
            return units.LayerUnits(sources=lambda x: [np.concatenate(x)])
    if kind is layers.Reshape:
        return _reshape(shape, output)
    if kind is layers.Conv2D:
        known = layer.groups == 1 and layer.data_format == "channels_last"
        if known and _is_elementwise(layer):
            kernel, *bias = units.channels_of(layer, 1)
            constant = ops.convert_to_tensor(layer.bias if bias else [0.0])
            return units.LayerUnits(
                [kernel, *(b._replace(counts=False) for b in bias)],
                units.channels_read(layer),
                units.count_as("filters"),
                # Without a kernel it is what the activation makes of the bias.
                value=ops.convert_to_numpy(layer.activation(constant)),
                folds=units.constants_of(layer),
            )
    if _treats_each(layer, shape):
        return _each(layer, shape, axis)
    return None


def _reshape(
    shape: units.Shape, target: units.Shape
) -> units.LayerUnits | None:
    if None in shape[1:] or len(shape) < 4:
        return None
    _, rows, columns, *_ = (size or 0 for size in shape)
    if len(shape) == 5 and len(target) == 3 and shape[-1] == target[-1]:
        # A capsule map [b, h, w, t, k] to capsules [b, i, k].
        return units.LayerUnits(
            settings=lambda left: {"target_shape": (-1, target[-1])},
            sources=lambda x: [np.tile(x[0], rows * columns)],
        )
    if len(shape) == 4 and target[1:] == (*shape[1:], 1):
        # A map [b, h, w, c] to capsules of one component.
        return units.LayerUnits(
            settings=lambda left: {"target_shape": (rows, columns, -1, 1)},
            sources=lambda x: x,
        )
    return None


def _each(layer: Any, shape: units.Shape, axis: int) -> units.LayerUnits:
    """Returns the units of a layer that treats each by itself."""

    def value(inputs: list[Any]) -> Any:
        [values] = inputs
        known = ~np.isnan(values)
        sizes = [1] * len(shape)
        sizes[axis] = -1
        given = np.where(known, values, 0.0).reshape(sizes).astype("float32")
        outputs = ops.convert_to_numpy(layer(given, training=False))
        if len(shape) != 4:  # such as one that pads
            known &= (values == 0) & ~any_at(outputs != 0, axis)
            outputs = np.zeros(len(values))
        return np.where(known, np.ravel(outputs), np.nan)

    # A normalisation of as many groups as units, however many there are.
    changes = {"groups": -1} if hasattr(layer, "groups") else {}
    return units.LayerUnits(
        [
            units.Slice(weight, 0, np.arange(weight.shape[0]))
            for weight in layer.weights
            if len(weight.shape) == 1
        ],
        settings=lambda left: changes,
        sources=lambda x: x,
        value=value,
    )


def any_at(used: units.Mask, axis: int) -> units.Mask:
    """Returns a mask of where along an axis something is true."""
    others = tuple(k for k in range(used.ndim) if k != axis)
    return np.asarray(used.any(axis=others))


def _is_elementwise(layer: Any) -> bool:
    return getattr(layer.activation, "__name__", "") in _ELEMENTWISE


def _treats_each(layer: Any, shape: units.Shape) -> bool:
    """Tells whether a layer treats each unit by itself."""
    kind = type(layer)
    if kind is layers.Activation:
        return _is_elementwise(layer)
    if kind in (layers.BatchNormalization, layers.GroupNormalization):
        are_single = getattr(layer, "groups", -1) in (-1, shape[-1])
        return are_single and len(shape) == 4 and layer.axis in (-1, 3)
    if kind is layers.ZeroPadding3D:
        is_map = tuple(layer.padding[-1]) == (0, 0)
        return is_map and layer.data_format == "channels_last"
    others = layers.Dropout, layers.ELU, layers.Identity, layers.LeakyReLU
    return kind in (*others, layers.ReLU)

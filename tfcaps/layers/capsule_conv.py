"""A plain convolution between maps of capsules, without routing."""

import math
from typing import Any

import keras
from keras import ops

from tfcaps.layers.primary_caps import PrimaryCaps
from tfcaps.layers.units import LayerUnits, channels_read
from tfcaps.ops import MAP, Tensor, check_axes


def capsule_glorot(shape: Any, dtype: Any = None) -> Tensor:
    """Draws uniformly in ±sqrt(6 / (2 * sqrt(size))) for `size` weights.

    Keras 2 did so for kernels of six axes, as DeepCaps has them. With the usual
    rule a dozen squashes in a row shrink the capsules to nothing.
    """
    limit = math.sqrt(3.0 / math.sqrt(math.prod(shape)))
    return keras.initializers.RandomUniform(-limit, limit)(shape, dtype=dtype)


@keras.saving.register_keras_serializable(package="tfcaps")
class CapsuleConv2D(PrimaryCaps):
    """Convolves a map of capsules and squashes the result.

    The types and components of a position are the channels of an ordinary
    convolution: it is `PrimaryCaps` on capsules, with the first kernels of
    DeepCaps. Arguments, output and errors are those of `PrimaryCaps`, with
    other defaults.

    Input shape:
        `[b, h, w, t, k]`.

    Example:

    >>> import numpy as np
    >>> children = np.zeros((2, 7, 7, 4, 8), "float32")
    >>> tuple(CapsuleConv2D(3, 16, strides=2)(children).shape)
    (2, 4, 4, 3, 16)

    References:
        - Rajasegaran et al., 2019, https://arxiv.org/abs/1904.09546
    """

    kernel_initializer = staticmethod(capsule_glorot)

    def __init__(
        self,
        num_types: int,
        dim: int,
        kernel_size: int | tuple[int, int] = 3,
        strides: int | tuple[int, int] = 1,
        padding: str = "same",
        *,
        use_bias: bool = False,
        **kwargs: Any,
    ):
        sizes = num_types, dim, kernel_size, strides, padding
        kwargs = {"data_format": "channels_last", **kwargs}
        super().__init__(*sizes, use_bias=use_bias, **kwargs)

    def build(self, input_shape: Any) -> None:
        check_axes(self, input_shape, "capsules", *MAP)
        super().build(_merged(input_shape))

    def call(self, inputs: Tensor) -> Tensor:
        _, *merged = _merged(ops.shape(inputs))
        return super().call(ops.reshape(inputs, (-1, *merged)))

    def compute_output_shape(self, input_shape: Any) -> Any:
        return super().compute_output_shape(_merged(input_shape))

    def inner_layers(self, input_shape: Any) -> list[Any]:
        return super().inner_layers(_merged(input_shape))

    def layer_units(self, input_shapes: Any) -> LayerUnits | None:
        units = super().layer_units(input_shapes)
        if units is None or self.depthwise:
            return None
        read = channels_read(self.conv, input_shapes[0][-1])
        return units._replace(read=read, folds=())


def _merged(shape: Any) -> tuple[Any, ...]:
    """Returns the shape with types and components as channels."""
    *grid, types, components = shape
    return (*grid, types * components)

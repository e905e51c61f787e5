"""The first capsule layer: a convolution whose channels become capsules."""

from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps.layers import units
from tfcaps.layers.feature_map import FeatureMapLayer
from tfcaps.ops import (
    FEATURES,
    SQUASHES,
    Tensor,
    check_axes,
    check_one_of,
    check_positive,
)


@keras.saving.register_keras_serializable(package="tfcaps")
class PrimaryCaps(FeatureMapLayer):
    """Turns a feature map into a map of capsules.

    `u = squash(conv(x))`, the channels of the convolution cut into `num_types`
    capsules of `dim` consecutive components at every position.

    Args:
        num_types: Int. Capsule types at each position.
        dim: Int. Components of a capsule.
        kernel_size: Int or two ints. Side of the window.
        strides: Int or two ints. Step of the window. Defaults to `1`.
        padding: `"valid"` or `"same"`. Defaults to `"valid"`.
        depthwise: Bool. Convolve each channel by itself, which takes far fewer
            weights; there must be `num_types * dim`. Defaults to `False`.
        squash: `"hinton"` (dynamic routing) or `"efficient"`
            (Efficient-CapsNet). Defaults to `"hinton"`.
        use_bias: Bool. Add a bias to the convolution. Defaults to `True`.
        **kwargs: Arguments of `keras.layers.Layer`, and `data_format`, which
            must be `"channels_last"` and defaults to the setting of Keras.

    Input shape:
        `[b, h, w, channels]`.

    Output shape:
        `[b, h', w', num_types, dim]`.

    Raises:
        ValueError: If an argument or the input's shape does not fit.

    Example:

    >>> import numpy as np
    >>> images = np.zeros((2, 8, 8, 16), "float32")
    >>> tuple(PrimaryCaps(4, 8, kernel_size=3)(images).shape)
    (2, 6, 6, 4, 8)

    References:
        - Sabour, Frosst, Hinton, 2017, https://arxiv.org/abs/1710.09829,
          section 4
        - Mazzia, Salvetti, Chiaberge, 2021, https://arxiv.org/abs/2101.12491
          (`depthwise`, `squash="efficient"`)
    """

    kernel_initializer: Any = "glorot_uniform"

    def __init__(
        self,
        num_types: int,
        dim: int,
        kernel_size: int | tuple[int, int],
        strides: int | tuple[int, int] = 1,
        padding: str = "valid",
        *,
        depthwise: bool = False,
        squash: str = "hinton",
        use_bias: bool = True,
        **kwargs: Any,
    ):
        check_positive(num_types=num_types, dim=dim)
        check_one_of(SQUASHES, squash=squash)
        super().__init__(**kwargs)
        self.num_types = num_types
        self.dim = dim
        self.kernel_size = kernel_size
        self.strides = strides
        self.padding = padding
        self.depthwise = depthwise
        self.squash = squash
        self.use_bias = use_bias
        self.conv = self._make_conv()

    def _make_conv(self) -> keras.layers.Layer:
        kind, first = keras.layers.Conv2D, "kernel_initializer"
        channels: tuple[int, ...] = (self.num_types * self.dim,)
        if self.depthwise:
            kind, first = keras.layers.DepthwiseConv2D, "depthwise_initializer"
            channels = ()
        return kind(
            *channels,
            kernel_size=self.kernel_size,
            strides=self.strides,
            padding=self.padding,
            use_bias=self.use_bias,
            **{first: self.kernel_initializer},
            **self.inner_settings("conv"),
        )

    def build(self, input_shape: Any) -> None:
        check_axes(self, input_shape, "a feature map", *FEATURES)
        channels = self.num_types * self.dim
        if self.depthwise and input_shape[-1] != channels:
            raise ValueError(
                "Depthwise PrimaryCaps need num_types * dim channels, here "
                f"{channels}. Received: input_shape={tuple(input_shape)}."
            )
        self.conv.build(input_shape)

    def call(self, inputs: Tensor) -> Tensor:
        features = self.conv(inputs)
        _, rows, columns, _ = features.shape
        if rows is None or columns is None:
            _, rows, columns, _ = ops.shape(features)
        shape = (-1, rows, columns, self.num_types, self.dim)
        return SQUASHES[self.squash](ops.reshape(features, shape))

    def compute_output_shape(self, input_shape: Any) -> Any:
        *batch_and_map, _ = self.conv.compute_output_shape(input_shape)
        return (*batch_and_map, self.num_types, self.dim)

    @property
    def receptive_windows(self) -> list[Any]:
        return [(self.kernel_size, self.strides, self.padding)]

    def inner_layers(self, input_shape: Any) -> list[Any]:
        return [(self.conv, input_shape)]

    def layer_units(self, input_shapes: Any) -> units.LayerUnits | None:
        if not self.depthwise:
            return units.LayerUnits(
                units.channels_of(self.conv, self.dim),
                units.channels_read(self.conv),
                units.count_as("num_types"),
                folds=units.constants_of(self.conv),
            )

        def sources(inputs: Any) -> list[Any]:
            # Each channel becomes one component.
            return [inputs[0][k :: self.dim] for k in range(self.dim)]

        return units.LayerUnits(
            units.channels_of(self.conv, self.dim, axis=2),
            settings=units.count_as("num_types"),
            sources=sources,
            value=lambda x: np.where(
                np.any(sources(x), axis=0) | self.use_bias, np.nan, 0.0
            ),
        )

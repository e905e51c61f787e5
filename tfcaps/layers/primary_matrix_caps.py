"""The first layer of matrix capsules, with activations of their own."""

from typing import Any

import keras
from keras import ops

from tfcaps.layers import units
from tfcaps.layers.feature_map import FeatureMapLayer
from tfcaps.ops import FEATURES, Tensor, check_axes, check_positive

# The bias of an activation that is 0 whatever the image, even in float64.
_NEVER = -1e4


@keras.saving.register_keras_serializable(package="tfcaps")
class PrimaryMatrixCaps(FeatureMapLayer):
    """Turns a feature map into matrix capsules and their activations.

    Two convolutions of 1x1: a linear one for the poses, and one with a sigmoid
    for the activations, which `EMRouting` takes apart from the poses.

    Args:
        num_types: Int. Capsule types at each position.
        dim: Int. Components of a pose, 16 for a 4x4 matrix. Defaults to `16`.
        **kwargs: Arguments of `keras.layers.Layer`, and `data_format`, which
            must be `"channels_last"` and defaults to the setting of Keras.

    Input shape:
        `[b, h, w, channels]`.

    Output shape:
        Poses `[b, h, w, num_types, dim]` and float32 activations `[b, h, w,
        num_types]` in [0, 1].

    Raises:
        ValueError: If `num_types` or `dim` is below 1, or the input has not
            four axes.

    Example:

    >>> import numpy as np
    >>> images = np.zeros((2, 8, 8, 3), "float32")
    >>> poses, activations = PrimaryMatrixCaps(4)(images)
    >>> tuple(poses.shape), tuple(activations.shape)
    ((2, 8, 8, 4, 16), (2, 8, 8, 4))

    References:
        - Hinton, Sabour, Frosst, 2018, "Matrix capsules with EM routing"
    """

    gone = {
        **FeatureMapLayer.gone,
        **{"kernel_size": 1, "strides": 1, "padding": "valid"},
    }

    def __init__(self, num_types: int, dim: int = 16, **kwargs: Any):
        check_positive(num_types=num_types, dim=dim)
        super().__init__(**kwargs)
        self.num_types = num_types
        self.dim = dim
        self.pose_conv, self.activation_conv = (
            keras.layers.Conv2D(channels, 1, **self.inner_settings(name))
            for name, channels in (
                ("pose_conv", num_types * dim),
                ("activation_conv", num_types),
            )
        )

    def build(self, input_shape: Any) -> None:
        check_axes(self, input_shape, "a feature map", *FEATURES)
        self.pose_conv.build(input_shape)
        self.activation_conv.build(input_shape)

    def call(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        poses = self.pose_conv(inputs)
        _, rows, columns, _ = ops.shape(poses)
        shape = (-1, rows, columns, self.num_types, self.dim)
        logits = ops.cast(self.activation_conv(inputs), "float32")
        return ops.reshape(poses, shape), ops.sigmoid(logits)

    receptive_windows = ()

    def inner_layers(self, input_shape: Any) -> list[Any]:
        convs = self.pose_conv, self.activation_conv
        return [(conv, input_shape) for conv in convs]

    def layer_units(self, input_shapes: Any) -> units.LayerUnits:
        poses, active = self.pose_conv, self.activation_conv
        return units.LayerUnits(
            units.channels_of(poses, self.dim)
            + units.channels_of(active, 1, fill=_NEVER),
            units.channels_read(poses) + units.channels_read(active),
            units.count_as("num_types"),
            outputs=2,
            active=(0, 1),
            folds=units.constants_of(poses, active),
        )

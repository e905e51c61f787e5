"""The loss of a decoder."""

import math
from typing import Any

import keras
from keras import ops

from tfcaps.configs import Configured
from tfcaps.ops import Tensor, check_not_negative


@keras.saving.register_keras_serializable(package="tfcaps")
class ReconstructionLoss(Configured, keras.losses.Loss):
    """Weighted squared error of a reconstruction.

    `weight` times the sum over all pixels and channels of the squared error,
    averaged over the batch. So the weight is that of one pixel, whatever the
    size of the images. The published 0.0005 is the 0.392 of codes that average
    over 28x28x1 pixels.

    Args:
        weight: Float. Defaults to the published `0.0005`.
        **kwargs: `reduction`, `name` and `dtype` of `keras.losses.Loss`.

    Call arguments:
        y_true: Images `[b, ...]`.
        y_pred: Reconstructions of the same size, in this or another shape.

    Raises:
        ValueError: If `weight` is negative, or the sizes differ.

    Example:

    >>> float(ReconstructionLoss(0.5)([[[1.0, 0.0]]], [[[0.0, 2.0]]]))
    2.5

    References:
        - Sabour, Frosst, Hinton, 2017, https://arxiv.org/abs/1710.09829,
          section 4.1
    """

    def __init__(self, weight: float = 0.0005, **kwargs: Any):
        check_not_negative(weight=weight)
        super().__init__(**kwargs)
        self.weight = weight

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        y_pred = ops.convert_to_tensor(y_pred)
        y_true = ops.cast(y_true, y_pred.dtype)
        size = math.prod(y_pred.shape[1:])
        if math.prod(y_true.shape[1:]) != size:
            raise ValueError(
                "Images and reconstructions must have as many values. Received:"
                f" images {tuple(y_true.shape)}, reconstructions "
                f"{tuple(y_pred.shape)}."
            )
        images = ops.reshape(y_true, (-1, size))
        error = images - ops.reshape(y_pred, (-1, size))
        return self.weight * ops.sum(ops.square(error), axis=-1)

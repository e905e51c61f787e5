"""The lengths of capsules."""

from typing import Any

import keras

from tfcaps import ops as capsule_ops
from tfcaps.ops import Tensor


@keras.saving.register_keras_serializable(package="tfcaps")
class Length(keras.layers.Layer):
    """Computes the length of each capsule, which is its activation.

    Input shape:
        `[..., d]`, for class capsules `[b, j, d]`.

    Output shape:
        `[...]`, for class capsules `[b, j]`, in [0, 1) after a squash.

    Example:

    >>> import numpy as np
    >>> float(Length()(np.array([[3.0, 4.0]], "float32"))[0])
    5.0
    """

    def call(self, inputs: Tensor) -> Tensor:
        return capsule_ops.length(inputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return tuple(input_shape[:-1])

    receptive_windows = ()

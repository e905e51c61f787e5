"""A layer whose gradient grows slowly to its full size."""

from typing import Any

import keras
from keras import ops

from tfcaps.ops import Tensor


@keras.saving.register_keras_serializable(package="tfcaps")
class GradientRamp(keras.layers.Layer):
    """Passes on its inputs, and a growing share of their gradient.

    The share is the number of training steps so far over `ramp_steps`, at most
    1, so a loss behind the layer gains weight slowly. The step count is a
    weight of the layer: it is saved with back-ups and works on every backend.

    Args:
        ramp_steps: Int, at least 1. Training steps until the gradient is
            complete.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        Any.

    Output shape:
        That of the input.

    Raises:
        ValueError: If `ramp_steps` is less than 1.
    """

    def __init__(self, ramp_steps: int, **kwargs: Any):
        if ramp_steps < 1:
            raise ValueError(
                "`ramp_steps` must be at least 1. Received: ramp_steps="
                f"{ramp_steps}."
            )
        super().__init__(**kwargs)
        self.ramp_steps = ramp_steps

    def build(self, input_shape: Any) -> None:
        self.step = self.add_weight(
            shape=(),
            initializer="zeros",
            dtype="int32",
            trainable=False,
            aggregation="only_first_replica",
            name="step",
        )

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        if not training:
            return inputs
        share = ops.cast(self.step, inputs.dtype) / self.ramp_steps
        # It stays at 1.
        self.step.assign(ops.minimum(self.step + 1, self.ramp_steps))
        constant = ops.stop_gradient(inputs)
        return constant + share * (inputs - constant)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "ramp_steps": self.ramp_steps}

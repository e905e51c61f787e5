"""The spread loss."""

from typing import Any

import keras
from keras import ops

from tfcaps.ops import Tensor, check_prediction, check_that, class_targets


@keras.saving.register_keras_serializable(package="tfcaps")
class SpreadLoss(keras.losses.Loss):
    """Keeps the present class's activation above all others by a margin.

    With activations `a` and the present class `t`

        L = sum_{j != t} max(0, margin - (a_t - a_j))^2

    averaged over the batch. With several present classes, the sum over them.

    The margin is a variable, which `tfcaps.callbacks.IncreaseMargin`
    moves during training.

    Args:
        margin: Float in (0, 1]. Defaults to `0.2`.
        **kwargs: `reduction`, `name` and `dtype` of `keras.losses.Loss`.

    Call arguments:
        y_true: As in `MarginLoss`.
        y_pred: Activations `[b, j]`.

    Raises:
        ValueError: If `margin` is out of range, predictions are not activations
            of two classes or more, or the targets' shape does not fit them.

    Example:

    >>> round(float(SpreadLoss(0.2)([1], [[0.95, 0.3, 0.05]])), 5)
    0.7225

    References:
        - Hinton, Sabour, Frosst, 2018, "Matrix capsules with EM routing", eq. 3
    """

    def __init__(self, margin: float = 0.2, **kwargs: Any):
        check_that(0.0 < margin <= 1.0, "be in (0, 1]", margin=margin)
        super().__init__(**kwargs)
        self.margin = keras.Variable(
            margin, dtype="float32", trainable=False, name="margin"
        )

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        y_pred = ops.convert_to_tensor(y_pred)
        check_prediction(y_pred, "batch", "classes", loss="SpreadLoss")
        if y_pred.shape[-1] == 1:
            raise ValueError(
                "SpreadLoss compares classes, of which there must be at least "
                "two. Received: predictions of the shape "
                f"{tuple(y_pred.shape)}. Use MarginLoss for one class."
            )
        present = class_targets(y_true, y_pred.shape[-1], y_pred.dtype)
        lead = ops.expand_dims(y_pred, 2) - ops.expand_dims(y_pred, 1)
        margin = ops.cast(self.margin, y_pred.dtype)
        costs = ops.square(ops.relu(margin - lead))
        pairs = ops.expand_dims(present, 2) * ops.expand_dims(1 - present, 1)
        return ops.sum(pairs * costs, axis=(1, 2))

    def get_config(self) -> dict[str, Any]:
        margin = round(float(ops.convert_to_numpy(self.margin)), 6)
        return {**super().get_config(), "margin": margin}

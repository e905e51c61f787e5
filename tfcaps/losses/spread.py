"""The spread loss, and its margin that grows."""

import math
from typing import Any

import keras
from keras import ops

from tfcaps.ops import Tensor, check_prediction, class_targets


@keras.saving.register_keras_serializable(package="tfcaps")
class SpreadLoss(keras.losses.Loss):
    """Keeps the present class's activation above all others by a margin.

    With activations `a` and the present class `t`

        L = sum_{j != t} max(0, margin - (a_t - a_j))^2

    averaged over the batch. With several present classes, the sum over them.

    The margin is a variable, which `IncreaseMargin` moves during training.

    Args:
        margin: Float in (0, 1]. Defaults to `0.2`.
        reduction: Reduction over the batch. Defaults to
            `"sum_over_batch_size"`.
        name: String. Defaults to `"spread_loss"`.
        **kwargs: Arguments of `keras.losses.Loss`.

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

    def __init__(
        self,
        margin: float = 0.2,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str = "spread_loss",
        **kwargs: Any,
    ):
        if not 0.0 < margin <= 1.0:
            raise ValueError(
                f"`margin` must be in (0, 1]. Received: margin={margin}."
            )
        super().__init__(reduction=reduction, name=name, **kwargs)
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


class IncreaseMargin(keras.callbacks.Callback):
    """Lets the margin of a `SpreadLoss` grow during `fit`.

    The published schedule, in steps of 64 images: the margin at a step is
    `0.2 + 0.79 * sigmoid(min(10, step / 50000 - 4))`.

    Args:
        loss: The `SpreadLoss` that the model was compiled with.
        steps: Float. What replaces 50,000 in a training of another length.
            Defaults to `50000`.

    Raises:
        ValueError: If `steps` is not positive, or the backend is JAX.
    """

    def __init__(self, loss: SpreadLoss, steps: float = 50_000):
        super().__init__()
        if steps <= 0:
            raise ValueError(
                f"`steps` must be positive. Received: steps={steps}."
            )
        self.loss = loss
        self.steps = steps

    def on_train_begin(self, logs: Any = None) -> None:
        if keras.backend.backend() == "jax":
            raise ValueError(
                "IncreaseMargin has no effect on the JAX backend, which takes "
                "the margin for a constant. Use a fixed margin, or TensorFlow."
            )

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        # The optimiser counts on when a run is resumed.
        step = int(ops.convert_to_numpy(self.model.optimizer.iterations))
        self.loss.margin.assign(spread_margin(step, self.steps))


def spread_margin(step: float, steps: float = 50_000) -> float:
    """Returns the margin of the spread loss at a step, see `IncreaseMargin`."""
    progress = min(10.0, step / steps - 4.0)
    return 0.2 + 0.79 / (1.0 + math.exp(-progress))

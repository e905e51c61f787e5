"""The margin loss."""

from typing import Any

import keras
from keras import ops

from tfcaps.configs import Configured
from tfcaps.ops import Tensor, check_prediction, class_targets


@keras.saving.register_keras_serializable(package="tfcaps")
class MarginLoss(Configured, keras.losses.Loss):
    """Makes the present class's capsule long and all others short.

    With lengths `a` and targets `T` (1 for a class that is present, else 0)

        L = sum_j [ T_j max(0, m_plus - a_j)^2
                    + down_weight (1 - T_j) max(0, a_j - m_minus)^2 ]

    summed over classes, averaged over the batch. The first author's code also
    divides by twice the number of classes; the paper and this loss do not.

    Args:
        m_plus: Float. Length above which a present class costs nothing.
            Defaults to `0.9`.
        m_minus: Float. Length below which an absent class costs nothing.
            Defaults to `0.1`.
        down_weight: Float. Weight of absent classes, `λ` in the paper. Defaults
            to `0.5`.
        **kwargs: `reduction`, `name` and `dtype` of `keras.losses.Loss`.

    Call arguments:
        y_true: Targets `[b, j]`, one-hot, soft, or with several ones or none,
            or class indices `[b]` or `[b, 1]`; an index outside `[0, j)` stands
            for no class. With one class, 1 where it is there, else 0.
        y_pred: Lengths `[b, j]`.

    Raises:
        ValueError: If predictions are no lengths, or the targets' shape does
            not fit them.

    Example:

    >>> round(float(MarginLoss()([1], [[0.95, 0.3, 0.05]])), 5)
    0.72125

    References:
        - Sabour, Frosst, Hinton, 2017, https://arxiv.org/abs/1710.09829, eq. 4
    """

    def __init__(
        self,
        m_plus: float = 0.9,
        m_minus: float = 0.1,
        down_weight: float = 0.5,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.m_plus = m_plus
        self.m_minus = m_minus
        self.down_weight = down_weight

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        y_pred = ops.convert_to_tensor(y_pred)
        check_prediction(y_pred, "batch", "classes", loss="MarginLoss")
        present = class_targets(y_true, y_pred.shape[-1], y_pred.dtype)
        missed = ops.square(ops.relu(self.m_plus - y_pred))
        false = ops.square(ops.relu(y_pred - self.m_minus))
        absent = 1.0 - present
        return ops.sum(
            present * missed + self.down_weight * absent * false, axis=-1
        )

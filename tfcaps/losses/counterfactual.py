"""A loss on the output without the tree, and on that with it alone."""

from typing import Any

import keras
from keras import ops

from tfcaps.configs import Configured
from tfcaps.losses.margin import MarginLoss
from tfcaps.losses.spread import SpreadLoss
from tfcaps.ops import (
    Tensor,
    as_float32,
    check_not_negative,
    check_prediction,
    class_targets,
    clear_targets,
)

# Length below which a class without its tree costs nothing.
_SHORT = 0.1


@keras.saving.register_keras_serializable(package="tfcaps")
class CounterfactualLoss(Configured, keras.losses.Loss):
    """Trains a network to use its tree: it is needed, and it is enough.

    The tree of an image consists of the children whose coupling with its class
    `y` exceeds the uniform one. With the lengths `a` of the class capsules
    when these children are silenced (`without`) and when all others are
    (`alone`)

        L = necessity * max(0, a_y(without) - 0.1)^2
            + sufficiency * MarginLoss(y, a(alone))

    averaged over the batch. The class without its tree may still be the longest
    of short ones. With `margin` another one must come first, and only
    differences count, as in `SpreadLoss`; activations that are a half without
    votes (EM routing) need it:

        L = necessity * max(0, margin - max_{k != y} a_k(without)
                               + a_y(without))^2
            + sufficiency * SpreadLoss(y, a(alone))

    Only half of a batch is routed again, each image in one of the two ways; it
    also stands for those that were not. A misclassified image costs nothing.
    It is a loss of the output `counterfactual` of `tfcaps.rem.add_couplings`,
    compiled as `CouplingLoss` is.

    Args:
        necessity: Float. Weight of the first term. Defaults to `1.0`.
        sufficiency: Float. Weight of the second term. Defaults to `1.0`.
        margin: Float in (0, 1] or `None`. By how much another class must be
            ahead without the tree, and the class with it alone. Defaults to
            `None`.
        **kwargs: `reduction`, `name` and `dtype` of `keras.losses.Loss`.

    Call arguments:
        y_true: As in `MarginLoss`. Of several present classes the longest one
            is judged; the largest of soft labels is that of the class.
        y_pred: The output `counterfactual` of `tfcaps.rem.add_couplings`, `[b,
            3, j]`: two one-hot rows of the class whose tree was silenced
            (first) or left alone (second), times the number of images that this
            one stands for, or zeros; and the lengths that were left.

    Raises:
        ValueError: If a weight is negative, `margin` out of range, or the shape
            of predictions or of targets does not fit.

    Example:

    >>> without = [[1.0, 0.0], [0.0, 0.0], [0.4, 0.2]]
    >>> alone = [[0.0, 0.0], [1.0, 0.0], [0.7, 0.0]]
    >>> loss = CounterfactualLoss(reduction=None)([0, 0], [without, alone])
    >>> [round(float(value), 4) for value in loss]  # 0.3^2 and 0.2^2
    [0.09, 0.04]

    References:
        - DeYoung et al., 2020, https://arxiv.org/abs/1911.03429
          (comprehensiveness and sufficiency, which this loss trains)
    """

    gone = {"m_plus": 0.9, "m_minus": 0.1, "down_weight": 0.5}

    def __init__(
        self,
        necessity: float = 1.0,
        sufficiency: float = 1.0,
        *,
        margin: float | None = None,
        **kwargs: Any,
    ):
        check_not_negative(necessity=necessity, sufficiency=sufficiency)
        super().__init__(**kwargs)
        self.necessity = necessity
        self.sufficiency = sufficiency
        self.margin = margin
        self._loss: keras.losses.Loss = (
            MarginLoss() if margin is None else SpreadLoss(margin)
        )

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        y_pred = as_float32(y_pred)
        check_prediction(
            y_pred, "batch", "3", "classes", loss="CounterfactualLoss"
        )
        without, alone, lengths = ops.unstack(y_pred, 3, axis=1)
        classes = y_pred.shape[-1]
        present = class_targets(y_true, classes, y_pred.dtype)
        present = clear_targets(present, classes)
        # Nothing where the class is wrong.
        without, alone = without * present, alone * present
        least: Any = _SHORT
        if self.margin is not None:
            # Activations are at most 1 apart, so that the class is not first.
            others = lengths - ops.sign(without)
            least = ops.max(others, axis=-1, keepdims=True) - self.margin
        excess = ops.relu(lengths - least)
        stays = ops.sum(without * ops.square(excess), axis=-1)
        missed = self._loss.call(ops.sign(alone), lengths)
        missed = ops.max(alone, axis=-1) * missed
        return self.necessity * stays + self.sufficiency * missed

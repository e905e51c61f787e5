"""A loss on the couplings towards the present class."""

import math
from typing import Any

import keras
from keras import ops

from tfcaps.configs import Configured
from tfcaps.ops import (
    Tensor,
    as_float32,
    check_not_negative,
    check_positive,
    check_prediction,
    check_that,
    class_targets,
    clear_targets,
)


@keras.saving.register_keras_serializable(package="tfcaps")
class CouplingLoss(Configured, keras.losses.Loss):
    """Makes the couplings of all images of a class alike and clear.

    With the couplings `c_bi` of child `i` towards the present class of image
    `b`, their mean `m_i` over the images of that class in the batch, and the
    entropy `H` of all couplings of a child

        L_b = spread * mean_i |c_bi - m_i|
              + polarization * mean_i H(c_bi1, ..., c_biJ) / ln J
              + crowding * max(0, mean_i c_bi - share)^2

    averaged over the batch; with several replicas each has means of its own.
    The first term makes parse trees alike and so lowers their entropy; alone,
    it is minimal for uniform couplings, which route nothing. The second drives
    couplings to 0 and 1, but is also minimal for a tree of every child. The
    third leaves each class the `share` of the children.

    An image whose children are, on the whole, coupled more with another class
    than with those present costs nothing and does not count in the means. The
    loss has no effect on `EMRouting` with `gradient="last"`, whose couplings
    are constants. Few and clear trees may be empty, which `CounterfactualLoss`
    beside this loss prevents.

    It is a loss of the output `couplings`, next to that of the lengths:

        training = tfcaps.rem.add_couplings(model)
        losses = {"lengths": MarginLoss(), "couplings": CouplingLoss()}
        training.compile("adam", losses)
        training.fit(images, {"lengths": labels, "couplings": labels})

    Args:
        spread: Float. Weight of the first term. Defaults to `1.0`.
        polarization: Float. Weight of the second term. Defaults to `0.6`.
        crowding: Float. Weight of the third term. Defaults to `2.0`.
        share: Float in [0, 1]. Mean coupling with the class above which the
            third term is positive. Defaults to `0.5`.
        places: Int. Number of places that have children of the same types,
            which follow each other. The first term then compares, of each type,
            the largest coupling anywhere. Defaults to `1`, no types.
        **kwargs: `reduction`, `name` and `dtype` of `keras.losses.Loss`.

    Call arguments:
        y_true: As in `MarginLoss`; each present class counts in the first and
            the third term. The largest of soft labels is that of the class.
        y_pred: Couplings `[b, i, j]`, not quantised.

    Raises:
        ValueError: If a weight is negative, or the shape of predictions or of
            targets does not fit.

    Example:

    >>> towards = [[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]  # the first class, [b, i]
    >>> couplings = [[[c, 1.0 - c] for c in image] for image in towards]
    >>> round(float(CouplingLoss()([0, 0], couplings)), 4)
    0.3889
    """

    def __init__(
        self,
        spread: float = 1.0,
        polarization: float = 0.6,
        crowding: float = 2.0,
        *,
        share: float = 0.5,
        places: int = 1,
        **kwargs: Any,
    ):
        check_not_negative(
            spread=spread, polarization=polarization, crowding=crowding
        )
        check_that(0 <= share <= 1, "be from 0 to 1", share=share)
        check_positive(places=places)
        super().__init__(**kwargs)
        self.spread = spread
        self.polarization = polarization
        self.crowding = crowding
        self.share = share
        self.places = places

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        # The epsilon below is too small for float16.
        couplings = as_float32(y_pred)
        check_prediction(
            couplings, "batch", "children", "classes", loss="CouplingLoss"
        )
        parents = couplings.shape[-1]
        present = class_targets(y_true, parents, couplings.dtype)
        present = clear_targets(present, parents)
        taken = ops.mean(couplings, axis=1)  # by each class
        strongest = taken >= ops.max(taken, axis=-1, keepdims=True)
        strongest = ops.cast(strongest, couplings.dtype)
        right = ops.max(present * strongest, axis=-1)
        present = present * ops.expand_dims(right, -1)
        # Towards each class, and the mean over the images that show it.
        counts = ops.maximum(ops.sum(present, axis=0), 1.0)
        compared = self._of_types(couplings)
        means = ops.einsum("bij,bj->ij", compared, present) / counts
        deviations = ops.mean(ops.abs(compared - means), axis=1)
        spread = ops.sum(present * deviations, axis=-1)
        # Coefficients that are no shares may be negative; these count as none.
        shares = ops.relu(couplings)
        nats = -ops.sum(shares * ops.log(shares + 1e-7), axis=-1)
        entropy = ops.mean(nats, axis=-1) / math.log(max(parents, 2))
        excess = ops.relu(taken - self.share)
        crowding = ops.sum(present * ops.square(excess), axis=-1)
        return (
            self.spread * spread
            + self.polarization * right * entropy
            + self.crowding * crowding
        )

    def _of_types(self, couplings: Tensor) -> Tensor:
        """Returns the largest couplings `[b, t, j]` of each type."""
        if self.places == 1:
            return couplings
        _, children, parents = couplings.shape
        if children % self.places:
            raise ValueError(
                f"{children} children cannot stand at places={self.places} "
                "places in equal numbers."
            )
        grid = (-1, self.places, children // self.places, parents)
        return ops.max(ops.reshape(couplings, grid), axis=1)

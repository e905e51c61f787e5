"""Losses on the lengths of class capsules, and on reconstructions."""

import math
from typing import Any

import keras
from keras import ops

from tfcaps.ops import Tensor, as_float32, class_targets


@keras.saving.register_keras_serializable(package="tfcaps")
class MarginLoss(keras.losses.Loss):
    """Wants the present class's capsule long and all others short.

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
        reduction: Reduction over the batch. Defaults to
            `"sum_over_batch_size"`.
        name: String. Defaults to `"margin_loss"`.
        **kwargs: Arguments of `keras.losses.Loss`.

    Call arguments:
        y_true: Targets `[b, j]`, one-hot or with several ones, or class
            indices `[b]` or `[b, 1]`; an index outside `[0, j)` stands for no
            class.
        y_pred: Lengths `[b, j]`.

    Raises:
        ValueError: If the targets' shape does not fit the lengths.

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
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str = "margin_loss",
        **kwargs: Any,
    ):
        super().__init__(reduction=reduction, name=name, **kwargs)
        self.m_plus = m_plus
        self.m_minus = m_minus
        self.down_weight = down_weight

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        y_pred = ops.convert_to_tensor(y_pred)
        present = class_targets(y_true, y_pred.shape[-1], y_pred.dtype)
        missed = ops.square(ops.relu(self.m_plus - y_pred))
        false = ops.square(ops.relu(y_pred - self.m_minus))
        absent = 1.0 - present
        return ops.sum(
            present * missed + self.down_weight * absent * false, axis=-1
        )

    def get_config(self) -> dict[str, Any]:
        config = {
            "m_plus": self.m_plus,
            "m_minus": self.m_minus,
            "down_weight": self.down_weight,
        }
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable(package="tfcaps")
class SpreadLoss(keras.losses.Loss):
    """Wants the present class's activation above all others by a margin.

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
        ValueError: If `margin` is out of range, or the targets' shape does not
            fit.

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


@keras.saving.register_keras_serializable(package="tfcaps")
class ReconstructionLoss(keras.losses.Loss):
    """Weighted squared error of a reconstruction.

    `weight` times the sum over all pixels and channels of the squared error,
    averaged over the batch. So the weight is that of one pixel, whatever the
    images' size, and needs no further `loss_weights`. Codes that average over
    pixels use `weight * rows * columns * channels`: the published 0.0005 is
    their 0.392 for 28x28x1.

    Args:
        weight: Float. Defaults to the published `0.0005`.
        reduction: Reduction over the batch. Defaults to
            `"sum_over_batch_size"`.
        name: String. Defaults to `"reconstruction_loss"`.
        **kwargs: Arguments of `keras.losses.Loss`.

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

    def __init__(
        self,
        weight: float = 0.0005,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str = "reconstruction_loss",
        **kwargs: Any,
    ):
        if weight < 0:
            raise ValueError(
                f"`weight` must not be negative. Received: weight={weight}."
            )
        super().__init__(reduction=reduction, name=name, **kwargs)
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

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "weight": self.weight}


@keras.saving.register_keras_serializable(package="tfcaps")
class CouplingLoss(keras.losses.Loss):
    """Wants the same, clear couplings for all images of a class.

    With the couplings `c_bi` of child `i` towards the present class of image
    `b`, their mean `m_i` over the images of that class in the batch, and the
    entropy `H` of all couplings of a child

        L_b = spread * mean_i (c_bi - m_i)^2
              + polarization * mean_i H(c_bi1, ..., c_biJ) / ln J
              + crowding * max(0, mean_i c_bi - 1/2)^2

    averaged over the batch; of several replicas each has means of its own. The
    first term makes parse trees alike and so lowers their entropy, but alone it
    is content with uniform couplings, which are no routing. The second term
    drives couplings to 0 and 1, but is content with a tree of every child,
    which only repeats the class. The third leaves each class about half of the
    children.

    An image whose children are on the whole coupled more with another class
    than with those present costs nothing, and is not in the means: clear
    couplings would make the network surer of what is wrong. Without effect in
    `EMRouting` with `gradient="last"`, whose couplings are constants.

    It is a loss of the output `couplings`, next to that of the lengths:

        training = tfcaps.rem.add_couplings(model)
        training.compile(
            "adam",
            {
                "lengths": tfcaps.losses.MarginLoss(),
                "couplings": tfcaps.losses.CouplingLoss(),
            },
        )
        training.fit(images, {"lengths": labels, "couplings": labels})

    Args:
        spread: Float. Weight of the first term. Defaults to `1.0`.
        polarization: Float. Weight of the second term. Defaults to `0.1`.
        crowding: Float. Weight of the third term. Defaults to `0.3`.
        reduction: Reduction over the batch. Defaults to
            `"sum_over_batch_size"`.
        name: String. Defaults to `"coupling_loss"`.
        **kwargs: Arguments of `keras.losses.Loss`.

    Call arguments:
        y_true: As in `MarginLoss`; with several present classes each counts in
            the first and the third term.
        y_pred: Couplings `[b, i, j]`, not quantised.

    Raises:
        ValueError: If a weight is negative, or the targets' shape does not fit.

    Example:

    >>> towards = [[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]  # the first class, [b, i]
    >>> couplings = [[[c, 1.0 - c] for c in image] for image in towards]
    >>> round(float(CouplingLoss()([0, 0], couplings)), 4)
    0.175
    """

    def __init__(
        self,
        spread: float = 1.0,
        polarization: float = 0.1,
        crowding: float = 0.3,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str = "coupling_loss",
        **kwargs: Any,
    ):
        for weight, value in (
            ("spread", spread),
            ("polarization", polarization),
            ("crowding", crowding),
        ):
            if value < 0:
                raise ValueError(
                    f"`{weight}` must not be negative. Received: "
                    f"{weight}={value}."
                )
        super().__init__(reduction=reduction, name=name, **kwargs)
        self.spread = spread
        self.polarization = polarization
        self.crowding = crowding

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        # The epsilon below is too small for float16.
        couplings = as_float32(y_pred)
        parents = couplings.shape[-1]
        present = class_targets(y_true, parents, couplings.dtype)
        taken = ops.mean(couplings, axis=1)  # by each class
        strongest = taken >= ops.max(taken, axis=-1, keepdims=True)
        strongest = ops.cast(strongest, couplings.dtype)
        right = ops.max(present * strongest, axis=-1)
        present = present * ops.expand_dims(right, -1)
        # Towards each class, and the mean over the images that show it.
        counts = ops.maximum(ops.sum(present, axis=0), 1.0)
        means = ops.einsum("bij,bj->ij", couplings, present) / counts
        deviations = ops.mean(ops.square(couplings - means), axis=1)
        spread = ops.sum(present * deviations, axis=-1)
        # Coefficients that are no shares may be negative; these count as none.
        shares = ops.relu(couplings)
        nats = -ops.sum(shares * ops.log(shares + 1e-7), axis=-1)
        entropy = ops.mean(nats, axis=-1) / math.log(max(parents, 2))
        excess = ops.relu(taken - 0.5)
        crowding = ops.sum(present * ops.square(excess), axis=-1)
        return (
            self.spread * spread
            + self.polarization * right * entropy
            + self.crowding * crowding
        )

    def get_config(self) -> dict[str, Any]:
        config = {
            "spread": self.spread,
            "polarization": self.polarization,
            "crowding": self.crowding,
        }
        return {**super().get_config(), **config}

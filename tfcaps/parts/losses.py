"""The losses of networks of parts, which no label of a part teaches."""

from typing import Any

import keras
from keras import ops

from tfcaps.configs import Configured
from tfcaps.losses.reconstruction import ReconstructionLoss
from tfcaps.ops import Tensor, as_float32, check_not_negative, class_targets

# Added to what has a logarithm.
_LEAST = 1e-30


def constellation_losses(
    generative: float = 0.2,
    sparsity: float = 0.02,
    ambiguity: float = 0.02,
    reconstruction: float = 0.1,
) -> dict[str, keras.losses.Loss]:
    """Returns the losses of a `tfcaps.parts.ConstellationModel`.

    Args:
        generative: Float. See `EvidenceLoss`. Defaults to `0.2`.
        sparsity: Float. See `PresenceLoss`. Defaults to `0.02`.
        ambiguity: Float. See `PresenceLoss`. Defaults to `0.02`.
        reconstruction: Float. Weight of the squared error of a pixel. Defaults
            to `0.1`.
    """
    return {
        "evidence": EvidenceLoss(generative),
        "presence": PresenceLoss(sparsity, ambiguity),
        "reconstruction": ReconstructionLoss(reconstruction),
    }


@keras.saving.register_keras_serializable(package="tfcaps")
class EvidenceLoss(Configured, keras.losses.Loss):
    """Trains the evidence of classes: to differ, and to be complete.

    With the evidence `L` of a network of parts and the class `y`

        loss = -log softmax(L)_y - generative * L_y

    The first term, cross-entropy, is content with any part that tells the
    classes apart; the second asks for all parts of the class.

    Args:
        generative: Float. Weight of the second term. Defaults to `0.2`.
        **kwargs: `reduction`, `name` and `dtype` of `keras.losses.Loss`.

    Call arguments:
        y_true: Class indices `[b]`, or targets `[b, j]` that sum to 1.
        y_pred: Evidence `[b, j]`.

    Raises:
        ValueError: If `generative` is negative, or the shapes do not fit.

    Example:

    >>> loss = EvidenceLoss(generative=0.0)([1], [[0.0, 0.0]])
    >>> round(float(loss), 4)  # log 2
    0.6931
    """

    def __init__(self, generative: float = 0.2, **kwargs: Any):
        check_not_negative(generative=generative)
        super().__init__(**kwargs)
        self.generative = generative

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        evidence = as_float32(y_pred)
        targets = class_targets(y_true, evidence.shape[-1], evidence.dtype)
        wrong = -ops.sum(targets * ops.log_softmax(evidence, axis=-1), axis=-1)
        missing = -ops.sum(targets * evidence, axis=-1)
        return wrong + self.generative * missing


@keras.saving.register_keras_serializable(package="tfcaps")
class PresenceLoss(Configured, keras.losses.Loss):
    """Keeps parts few, and each of a single type.

    With the presence `a` of the types at a place and `p = 1 - a(nothing)`

        loss = sparsity * sum p - ambiguity * sum_t a_t log(a_t / p)

    summed over places. It looks at no targets.

    Args:
        sparsity: Float. Weight of the first term. Defaults to `0.02`.
        ambiguity: Float. Weight of the second term. Defaults to `0.02`.
        **kwargs: `reduction`, `name` and `dtype` of `keras.losses.Loss`.

    Call arguments:
        y_true: Anything with a row for each image.
        y_pred: Presence `[b, h, w, t + 1]`, nothing last.

    Raises:
        ValueError: If a weight is negative.

    Example:

    >>> half = [[[[0.5, 0.0, 0.5]]]]  # one place: half a part of one type
    >>> round(float(PresenceLoss(0.1)([0], half)), 3)
    0.05
    """

    def __init__(
        self, sparsity: float = 0.02, ambiguity: float = 0.02, **kwargs: Any
    ):
        check_not_negative(sparsity=sparsity, ambiguity=ambiguity)
        super().__init__(**kwargs)
        self.sparsity = sparsity
        self.ambiguity = ambiguity

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        del y_true
        presence = as_float32(y_pred)
        types, _ = ops.split(presence, [presence.shape[-1] - 1], axis=-1)
        present = ops.sum(types, axis=-1, keepdims=True)
        shares = types / (present + 1e-6)
        unsure = -ops.sum(types * ops.log(shares + 1e-6), axis=(1, 2, 3))
        amount = ops.sum(present, axis=(1, 2, 3))
        return self.sparsity * amount + self.ambiguity * unsure


@keras.saving.register_keras_serializable(package="tfcaps")
class CellLoss(keras.losses.Loss):
    """Trains the presence of types at places where it is known.

    With the presence `a` and the `N` places of an image, of which `K` are known

        loss = -N / K * sum of log a_t over known places, of their type t

    Args:
        **kwargs: `reduction`, `name` and `dtype` of `keras.losses.Loss`.

    Call arguments:
        y_true: The type at each place `[b, h, w]`, ints: `t` for nothing, -1
            where it is not known. Or shares `[b, h, w, t + 1]`, nothing last,
            of which those of an unknown place are all 0.
        y_pred: Presence `[b, h, w, t + 1]`, nothing last.

    Raises:
        ValueError: If the shapes do not fit.

    Example:

    >>> sure = [[[[0.5, 0.5], [0.1, 0.9]]]]  # two places, one type
    >>> round(float(CellLoss()([[[0, -1]]], sure)), 3)  # 2 log 2
    1.386
    """

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        presence = as_float32(y_pred)
        targets = ops.convert_to_tensor(y_true)
        count, shape = int(presence.shape[-1]), tuple(targets.shape)
        if len(shape) == 3:
            targets = ops.one_hot(ops.cast(targets, "int32"), count)
        elif len(shape) != 4 or shape[-1] != count:
            raise ValueError(
                "Targets must be types [b, h, w] or shares [b, h, w, t + 1] for"
                f" presence {tuple(presence.shape)}. Received: targets {shape}."
            )
        targets = ops.cast(targets, "float32")
        known = ops.cast(ops.sum(targets, axis=-1) > 0, "float32")
        # Keras' own has no gradient where a share is below 1e-7.
        costs = -ops.sum(targets * ops.log(presence + _LEAST), axis=(1, 2, 3))
        share = ops.mean(known, axis=(1, 2))
        return costs / ops.maximum(share, 1e-6)  # of none it is 0

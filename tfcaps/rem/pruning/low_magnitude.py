"""Magnitude pruning on a schedule, under the names that users of tfmot know.

tfmot refuses Keras 3 layers, but its schedules are plain objects.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from tfcaps.rem.pruning.pruning import (
    Schedule,
    Scheduled,
    begin,
    target_variables,
)

SCOPES = ("tensor", "global")

Weights = NDArray[np.floating]
Mask = NDArray[np.bool_]


def prune_low_magnitude(
    model: keras.Model,
    pruning_schedule: Schedule,
    *,
    scope: str = "tensor",
) -> keras.Model:
    """Prepares a model for pruning during `fit`.

    Kernels and transformations are pruned, biases never. Train with the
    callback `UpdatePruningStep()`, which rewrites the masks when
    the schedule says so; then call `strip_pruning`. The masks start with ones
    and live in the optimiser: compile the model before or after this call, and
    before restoring a checkpoint that was written during pruning.

    Args:
        model: A built `keras.Model`. It is changed in place.
        pruning_schedule: tfmot's `PolynomialDecay` or `ConstantSparsity`, a
            `keras.optimizers.schedules` object, or any function from the step
            (counted from 1) to the sparsity. One that does not decide when to
            prune, as tfmot's do, is followed at every step.
        scope: `"tensor"` prunes the same share of each weight, `"global"`
            compares magnitudes across weights. Defaults to `"tensor"`.

    Returns:
        The same model.

    Raises:
        ValueError: If an argument is out of range, or the model has no weight
            to prune or is pruned already.

    References:
        - Zhu, Gupta, 2017, https://arxiv.org/abs/1710.01878
    """
    check_scope(scope)
    variables = target_variables(model.trainable_variables)
    return begin(model, _LowMagnitude(variables, pruning_schedule, scope))


class _LowMagnitude(Scheduled):
    """Prunes the smallest magnitudes."""

    def __init__(self, variables: list[Any], schedule: Schedule, scope: str):
        super().__init__(variables, schedule)
        self.scope = scope

    def masks_for(self, weights: Sequence[Any], target: float) -> list[Any]:
        return list(magnitude_masks(weights, target, scope=self.scope))


def magnitude_threshold(magnitudes: Weights, sparsity: float) -> np.floating:
    """Returns the smallest magnitude that survives.

    `keep = max(round(size * (1 - sparsity)), 1)` in float32, halves to the even
    number; the threshold is the keep-th largest magnitude. These are tfmot's
    rules.
    """
    flat = magnitudes.ravel()
    share = np.float32(1.0) - np.float32(sparsity)
    keep = max(int(np.round(np.float32(flat.size) * share)), 1)
    position = flat.size - keep
    threshold: np.floating = np.partition(flat, position)[position]
    return threshold


def magnitude_masks(
    weights: Sequence[Weights], sparsity: float, *, scope: str = "tensor"
) -> list[Mask]:
    """Returns the masks (True keeps) that prune the smallest magnitudes.

    All magnitudes equal to the threshold survive, so that with ties the
    sparsity reached can fall short of `sparsity`; at least one weight survives.

    Args:
        weights: Arrays of any shapes.
        sparsity: Float in [0, 1]. Share of weights to prune.
        scope: `"tensor"` prunes the same share of each array, `"global"` takes
            one threshold for all of them. Defaults to `"tensor"`.

    Returns:
        A list of boolean arrays of the same shapes.

    Raises:
        ValueError: If `sparsity` is outside [0, 1] or `scope` is unknown.
    """
    if not 0.0 <= sparsity <= 1.0:
        raise ValueError(
            f"`sparsity` must be in [0, 1]. Received: sparsity={sparsity}. "
            "Check the pruning schedule."
        )
    check_scope(scope)
    magnitudes = [np.abs(array) for array in weights]
    if scope == "tensor":
        thresholds = [magnitude_threshold(m, sparsity) for m in magnitudes]
    else:
        together = np.concatenate([m.ravel() for m in magnitudes])
        thresholds = [magnitude_threshold(together, sparsity)] * len(magnitudes)
    return [m >= t for m, t in zip(magnitudes, thresholds, strict=True)]


def check_scope(scope: str) -> None:
    """Raises `ValueError` if `scope` is unknown."""
    if scope not in SCOPES:
        raise ValueError(
            f"`scope` must be one of {SCOPES}. Received: scope={scope!r}."
        )

"""Magnitude pruning on a schedule, under the names that users of tfmot know.

tfmot refuses Keras 3 layers, but its schedules are plain objects.
"""

from collections.abc import Sequence
from typing import Any

import keras

from tfcaps.rem.pruning.masks import (
    check_scope,
    magnitude_masks,
    target_variables,
)
from tfcaps.rem.pruning.pruning import Schedule, Scheduled, begin


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

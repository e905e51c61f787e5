"""Magnitude pruning on a schedule, under the names that users of tfmot know.

tfmot refuses Keras 3 layers, but its schedules are plain objects.
"""

from collections.abc import Sequence

import keras

from tfcaps.rem.pruning.masks import (
    DEFAULT_TARGETS,
    check_scope,
    magnitude_masks,
    target_variables,
)
from tfcaps.rem.pruning.pruning import (
    Schedule,
    Scheduled,
    begin,
    check_schedule,
    check_unpruned,
)


def prune_low_magnitude(
    model: keras.Model,
    pruning_schedule: Schedule,
    *,
    targets: str | Sequence[str] = DEFAULT_TARGETS,
    scope: str = "tensor",
    frequency: int = 1,
) -> keras.Model:
    """Prepares a model for pruning during `fit`.

    Train with the callback `UpdatePruningStep()`, which rewrites the masks when
    the schedule says so; then call `strip_pruning`. The masks start with ones
    and live in the optimiser: compile the model before or after this call, and
    before restoring a checkpoint that was written during pruning.

    Args:
        model: A built `keras.Model`. It is changed in place.
        pruning_schedule: tfmot's `PolynomialDecay` or `ConstantSparsity`, a
            `keras.optimizers.schedules` object, or any function from the step
            (counted from 1) to the sparsity.
        targets: `"transformations"`, `"kernels"`, or several of these groups.
            Biases are never pruned. Defaults to both.
        scope: `"tensor"` prunes the same share of each weight, `"global"`
            compares magnitudes across weights. Defaults to `"tensor"`.
        frequency: Int. Steps between two updates of the masks. Only for
            schedules that do not decide this themselves, as tfmot's do.
            Defaults to `1`.

    Returns:
        The same model.

    Raises:
        ValueError: If an argument is out of range, or the model has no weight
            to prune or is pruned already.

    References:
        - Zhu, Gupta, 2017, https://arxiv.org/abs/1710.01878
    """
    check_scope(scope)
    check_schedule(pruning_schedule, frequency)
    check_unpruned(model)
    return begin(
        model, _LowMagnitude(model, targets, pruning_schedule, scope, frequency)
    )


class _LowMagnitude(Scheduled):
    """Prunes the smallest magnitudes."""

    def __init__(
        self,
        model: keras.Model,
        targets: str | Sequence[str],
        schedule: Schedule,
        scope: str,
        frequency: int,
    ):
        variables = target_variables(model.trainable_variables, targets)
        super().__init__(variables, schedule, frequency)
        self.scope = scope

    def update(self, model: keras.Model, target: float) -> None:
        weights = self.weights(model)
        masks = magnitude_masks(weights, target, scope=self.scope)
        self.prune(weights, masks)

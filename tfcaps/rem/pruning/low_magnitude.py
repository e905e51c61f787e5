"""Magnitude pruning on a schedule, under the names that users of tfmot know.

tfmot refuses Keras 3 layers, but its schedules are plain objects.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras

from tfcaps.rem.pruning.masks import check_scope, magnitude_masks
from tfcaps.rem.pruning.pruning import Pruning, begin, check_unpruned
from tfcaps.rem.pruning.targets import DEFAULT_TARGETS

Schedule = Callable[[int], Any]

# What schedules of tfmot and Keras call the sparsity at their end.
_GOALS = ("final_sparsity", "target_sparsity", "end_learning_rate")


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
    if not callable(pruning_schedule):
        raise ValueError(
            "`pruning_schedule` must be a function from the step to the "
            "sparsity, such as tfmot's PolynomialDecay. Received: "
            f"pruning_schedule={pruning_schedule!r}."
        )
    if frequency < 1:
        raise ValueError(
            f"`frequency` must be at least 1. Received: frequency={frequency}."
        )
    check_unpruned(model)
    return begin(
        model, _Scheduled(model, targets, pruning_schedule, scope, frequency)
    )


class _Scheduled(Pruning):
    """Rewrites the masks when a schedule says so."""

    def __init__(
        self,
        model: keras.Model,
        targets: str | Sequence[str],
        schedule: Schedule,
        scope: str,
        frequency: int,
    ):
        super().__init__(model, targets)
        self.schedule = schedule
        self.scope = scope
        self.frequency = frequency
        self._last_sparsity: float | None = None
        for name in _GOALS:
            self.goal = float(getattr(schedule, name, None) or self.goal)

    def begin_step(self, model: keras.Model, step: int) -> None:
        steps = range(step, step + (model.steps_per_execution or 1))
        due = [t for t in map(self._target, steps) if t is not None]
        if not due:
            return
        target = due[-1]
        weights = self.weights(model)
        masks = magnitude_masks(weights, target, scope=self.scope)
        self.prune(weights, masks)

    def _target(self, step: int) -> float | None:
        """Returns the sparsity to reach now, or None if nothing changes."""
        value = self.schedule(step)
        if isinstance(value, tuple):  # tfmot: (is it time, sparsity)
            is_time, value = value
            return float(value) if bool(is_time) else None
        if (step - 1) % self.frequency:
            return None
        value = float(value)
        if value == self._last_sparsity:
            return None
        self._last_sparsity = value
        return value

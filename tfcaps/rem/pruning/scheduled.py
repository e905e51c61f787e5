"""Pruning that goes by a schedule of the step."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

import keras

from tfcaps.rem.pruning.pruning import Pruning

Schedule = Callable[[int], Any]

# What schedules of tfmot and Keras call the sparsity at their end.
_GOALS = ("final_sparsity", "target_sparsity", "end_learning_rate")


def check_schedule(schedule: Any, frequency: int) -> None:
    """Raises `ValueError` unless a schedule and a frequency are such."""
    if not callable(schedule):
        raise ValueError(
            "`pruning_schedule` must be a function from the step to the "
            "sparsity, such as tfmot's PolynomialDecay. Received: "
            f"pruning_schedule={schedule!r}."
        )
    if frequency < 1:
        raise ValueError(
            f"`frequency` must be at least 1. Received: frequency={frequency}."
        )


class Scheduled(Pruning, abc.ABC):
    """Rewrites the masks when a schedule says so.

    Args:
        variables: The weights that can be pruned.
        schedule: From the step, counted from 1, to the share that is pruned,
            or as tfmot's to whether it is time and that share.
        frequency: Int. Steps between two updates, for schedules that do not
            decide this themselves.
        fills: As in `Pruning`.
    """

    def __init__(
        self,
        variables: Sequence[Any],
        schedule: Schedule,
        frequency: int,
        fills: Sequence[float] | None = None,
    ):
        super().__init__(variables, fills=fills)
        self.schedule = schedule
        self.frequency = frequency
        self._last_sparsity: float | None = None
        for name in _GOALS:
            self.goal = float(getattr(schedule, name, None) or self.goal)

    @abc.abstractmethod
    def update(self, model: keras.Model, target: float) -> None:
        """Prunes so much that a share of `target` is pruned."""

    def begin_step(self, model: keras.Model, step: int) -> None:
        steps = range(step, step + (model.steps_per_execution or 1))
        due = [t for t in map(self._target, steps) if t is not None]
        if due:
            self.update(model, due[-1])

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

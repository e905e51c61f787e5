"""Callbacks that set in training what gradients do not.

Those of pruning are `tfcaps.rem.Prune` and `tfcaps.rem.UpdatePruningStep`.
"""

import math
from collections.abc import Callable
from typing import Any

import keras

from tfcaps.graphs import routing_of, unwrapped
from tfcaps.losses import SpreadLoss
from tfcaps.ops import check_that
from tfcaps.parts.estimation import BlueprintEstimation as BlueprintEstimation
from tfcaps.parts.estimation import HardenParts as HardenParts

__all__ = [
    "BlueprintEstimation",
    "HardenParts",
    "IncreaseMargin",
    "SharpnessSchedule",
]


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
        check_that(steps > 0, "be positive", steps=steps)
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
        step = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
        self.loss.margin.assign(self.margin_at(step))

    def margin_at(self, step: int) -> float:
        """Returns the margin at a step of the optimiser, counted from 0."""
        progress = min(10.0, step / self.steps - 4.0)
        return 0.2 + 0.79 / (1.0 + math.exp(-progress))


class SharpnessSchedule(keras.callbacks.Callback):
    """Sets the sharpness of dynamic routing at the start of each epoch.

    Couplings that are sharp from the start keep most children out of every tree
    before they have learnt to agree; blunt ones leave trees unclear. Set is
    every `DynamicRouting` with `sharpness_mode="scheduled"`. The value is a
    weight of the layer: it is saved with the model, and exported.

    Args:
        schedule: Function from the epoch, counted from 0, to the sharpness, a
            number above 0.

    Raises:
        ValueError: When training begins, if no layer has such a routing; and if
            the schedule returns no finite number above 0.

    Example:

    >>> grow = SharpnessSchedule(lambda epoch: min(10.0 * 1.5**epoch, 100.0))
    >>> grow.schedule(2)
    22.5
    """

    def __init__(self, schedule: Callable[[int], float]):
        super().__init__()
        self.schedule = schedule

    def on_train_begin(self, logs: Any = None) -> None:
        if not scheduled_layers(self.model):
            raise ValueError(
                f"The model {self.model.name!r} must have a layer with "
                '`DynamicRouting(sharpness_mode="scheduled")`. Received: none.'
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        sharpness = float(self.schedule(epoch))
        if not 0 < sharpness < math.inf:
            raise ValueError(
                "The schedule must return finite numbers above 0. Received: "
                f"{sharpness} for epoch {epoch}."
            )
        for layer in scheduled_layers(self.model):
            layer.log_sharpness.assign(math.log(sharpness))


def scheduled_layers(model: keras.Model) -> list[Any]:
    """Returns the layers of a model whose sharpness is to be scheduled."""
    return [
        layer
        for layer in map(unwrapped, model.layers)
        if getattr(routing_of(layer), "sharpness_mode", "") == "scheduled"
    ]

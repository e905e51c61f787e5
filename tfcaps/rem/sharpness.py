"""The sharpness of routing, set while a network trains."""

import math
from collections.abc import Callable
from typing import Any

import keras

from tfcaps.graphs import unwrapped


class SharpnessSchedule(keras.callbacks.Callback):
    """Sets the sharpness of dynamic routing at the start of each epoch.

    Couplings that are sharp from the start keep most children out of every tree
    before they have learnt to agree; couplings that are blunt at the end leave
    trees unclear. The schedule sets every `DynamicRouting` with
    `sharpness_mode="scheduled"` in the model. The value is a weight of the
    layer: it is saved with the model, and exported.

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
        if not self._weights():
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
        for weight in self._weights():
            weight.assign(math.log(sharpness))

    def _weights(self) -> list[Any]:
        return [layer.log_sharpness for layer in scheduled_layers(self.model)]


def scheduled_layers(model: keras.Model) -> list[Any]:
    """Returns the layers of a model whose sharpness is to be scheduled."""
    return [
        layer
        for layer in map(unwrapped, model.layers)
        if getattr(getattr(layer, "routing", None), "sharpness_mode", "")
        == "scheduled"
    ]

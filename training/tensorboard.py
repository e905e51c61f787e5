"""Logs of a training for `tensorboard --logdir runs`."""

from pathlib import Path
from typing import Any

import keras

from training.measure import Measure


class TensorBoard(keras.callbacks.TensorBoard):
    """Keras' own callback, with what is measured besides the training.

    Args:
        folder: Where the logs of the run go.
        name: Name of the model.
        measure: The callback that measures, which must come before.
    """

    def __init__(self, folder: Path, name: str, measure: Measure):
        super().__init__(str(folder / name), write_graph=False)
        self.measure = measure

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        row = self.measure.row
        measured = {}
        if row is not None and row["epoch"] == epoch:
            measured = {k: v for k, v in row.items() if isinstance(v, float)}
            for layer, values in row["layers"].items():
                measured |= {f"{layer}/{k}": v for k, v in values.items()}
        super().on_epoch_end(epoch, {**(logs or {}), **measured})

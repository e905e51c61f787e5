"""The end of a training that no longer improves."""

import json
from pathlib import Path

import keras
import numpy as np

from tfcaps.files import write_atomically
from training import devices


class StopOnPlateau(keras.callbacks.Callback):
    """Stops when the validation loss has not fallen for some epochs.

    The losses of all epochs are kept in a file, so that a resumed training
    stops where an uninterrupted one would have stopped.

    Args:
        batches: Validation batches, as the model is trained on.
        patience: Int. Epochs without a lower loss.
        path: The file.
    """

    def __init__(self, batches, patience: int, path: Path):
        super().__init__()
        self.batches = batches
        self.patience = patience
        self.path = path

    @property
    def losses(self) -> list[float]:
        """The validation loss of each epoch so far."""
        if not self.path.exists():
            return []
        return json.loads(self.path.read_text("utf-8"))

    def epochs(self, most: int) -> int:
        """Returns how many epochs to train, as far as that is known."""
        losses = self.losses
        for done in range(1, len(losses) + 1):
            if done - 1 - int(np.argmin(losses[:done])) >= self.patience:
                return min(done, most)
        return most

    def on_epoch_end(self, epoch, logs=None):
        measured = self.model.evaluate(
            self.batches, verbose=0, return_dict=True
        )
        # An epoch that is repeated after a stop takes the place of its first.
        losses = [*self.losses[:epoch], measured["loss"]]
        if devices.process() == 0:
            with write_atomically(self.path, "w") as file:
                json.dump(losses, file)
        if logs is not None:
            logs["val_loss"] = measured["loss"]
        if epoch - int(np.argmin(losses)) >= self.patience:
            self.model.stop_training = True

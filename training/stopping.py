"""The end of a training by what the validation images say."""

import json
from pathlib import Path

import keras
import numpy as np

from tfcaps.files import put_in_place, write_atomically
from training import devices
from training.batches import Batches


class StopOnValidation(keras.callbacks.Callback):
    """Stops when the loss has not fallen for long, or the accuracy is reached.

    The measures of all epochs are kept in a file, so that a resumed training
    stops where an uninterrupted one would have stopped.

    Args:
        batches: Validation batches, as the model is trained on.
        path: The file.
        patience: Int. Epochs without a lower loss, or `None` for any number.
        accuracy: Float. Accuracy that is enough, or `None` for none.
        not_before: Int. Epochs before which no accuracy is enough. Defaults to
            0.
        compare_from: Int. First epoch of another loss, from which on earlier
            ones are no longer compared with. Defaults to 0.
        best: File for the weights of the epoch with the lowest loss, ending in
            `.weights.h5`. Defaults to `None`, which keeps none.
    """

    def __init__(
        self,
        batches: Batches,
        path: Path,
        *,
        patience: int | None = None,
        accuracy: float | None = None,
        not_before: int = 0,
        compare_from: int = 0,
        best: Path | None = None,
    ):
        super().__init__()
        self.batches = batches
        self.path = path
        self.patience = patience
        self.accuracy = accuracy
        self.not_before = not_before
        self.compare_from = compare_from
        self.best = best

    @property
    def measured(self) -> list[dict[str, float]]:
        """The validation loss and accuracy of each epoch so far."""
        if not self.path.exists():
            return []
        return json.loads(self.path.read_text("utf-8"))

    def epochs(self, most: int) -> int:
        """Returns how many epochs to train, as far as that is known."""
        measured = self.measured
        for done in range(1, len(measured) + 1):
            if self._is_over(measured[:done]):
                return min(done, most)
        return most

    def on_epoch_end(
        self, epoch: int, logs: dict[str, float] | None = None
    ) -> None:
        values = self.model.evaluate(self.batches, verbose=0, return_dict=True)
        row = {"loss": values["loss"]}
        if self.accuracy is not None:
            row["accuracy"] = accuracy(values)
        # An epoch that is repeated after a stop takes the place of its first.
        measured = [*self.measured[:epoch], row]
        if devices.process() == 0:
            if self.best is not None and self._best(measured) == epoch:
                self._keep(self.best)
            with write_atomically(self.path, "w") as file:
                json.dump(measured, file)
        if logs is not None:
            logs.update({f"val_{name}": value for name, value in row.items()})
        if self._is_over(measured):
            self.model.stop_training = True

    def restore(self, model: keras.Model) -> None:
        """Gives a trained model the weights that were kept, if any were."""
        devices.wait()
        if self.best is not None:
            model.load_weights(self.best)

    def _keep(self, path: Path) -> None:
        staged = path.with_name(f".{path.name}")
        # Writing makes variables, which concern no other process.
        with devices.alone():
            self.model.save_weights(staged)
        put_in_place(staged, path)

    def _best(self, measured: list[dict[str, float]]) -> int:
        """Returns the epoch of the lowest loss."""
        losses = [row["loss"] for row in measured]
        first = self.compare_from if len(losses) > self.compare_from else 0
        return first + int(np.argmin(losses[first:]))

    def _is_over(self, measured: list[dict[str, float]]) -> bool:
        done = len(measured)
        waited = done - 1 - self._best(measured)
        if self.patience is not None and waited >= self.patience:
            return True
        return (
            self.accuracy is not None
            and done >= self.not_before
            and measured[-1]["accuracy"] >= self.accuracy
        )


def accuracy(values: dict[str, float]) -> float:
    """Returns the accuracy among the metrics of a model."""
    names = (
        "accuracy",
        "lengths_accuracy",
        "evidence_accuracy",
        "both_found",
        "lengths_both_found",
    )
    return next(values[name] for name in names if name in values)

"""The back-up of a training, from which it goes on after it was stopped."""

from pathlib import Path
from typing import Any

import keras

from cli import UserError
from tfcaps.files import put_in_place
from training import devices

_NAME = "epoch-{}.weights.h5"
_MOST = 100


class BackUp(keras.callbacks.Callback):
    """Keeps weights and optimiser of a whole epoch, about a hundred times.

    Trainings of up to a hundred epochs are kept after each one; of others,
    whose epochs may be shorter than it takes to write, a hundredth may have to
    be trained again.

    Keras' own `BackupAndRestore` writes weights and epoch one after the other;
    stopped in between, it repeats an epoch, and stopped while it deletes its
    files it takes the first weights for the last. Here one file with the epoch
    in its name appears complete, and nothing is deleted before.

    It is written by the first process and read by all.

    Args:
        folder: Where the file goes.
    """

    def __init__(self, folder: Path):
        super().__init__()
        self.folder = folder

    @property
    def epochs(self) -> int:
        """How many epochs have been trained."""
        return max(map(_epoch, self._files()), default=0)

    def on_train_begin(self, logs: Any = None) -> None:
        done = self.epochs
        # As Keras' own callback does: `fit` begins with this epoch. It stays
        # with the model, so one of an earlier `fit` is taken away.
        self.model._initial_epoch = done or None
        if not done:
            return
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        path = self.folder / _NAME.format(done)
        try:
            self.model.load_weights(path)
        except (OSError, ValueError, KeyError) as error:
            raise UserError(
                f"the back-up {path} cannot be read: {error}. Remove it to "
                "train this model from its first epoch."
            ) from error

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        epochs, done = self.params["epochs"], epoch + 1
        is_over = done == epochs or self.model.stop_training
        is_due = is_over or done % max(epochs // _MOST, 1) == 0
        if devices.process() > 0 or not is_due:
            return
        self.write(self.model, done)

    def write(self, model: keras.Model, done: int) -> None:
        """Keeps a model after so many epochs, in place of an earlier one."""
        name = _NAME.format(done)
        before = [path for path in self._files() if path.name != name]
        self.folder.mkdir(exist_ok=True)
        staged = self.folder / f".{name}"
        # Writing makes variables, which concern no other process.
        with devices.alone():
            model.save_weights(staged)
        put_in_place(staged, self.folder / name)
        for path in before:
            path.unlink()

    def _files(self) -> list[Path]:
        return list(self.folder.glob(_NAME.format("*")))


def _epoch(path: Path) -> int:
    return int(path.name.split(".")[0].removeprefix("epoch-"))

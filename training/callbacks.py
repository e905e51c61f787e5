"""Callbacks of a training: back-up, early stops, and what is measured."""

import json
import statistics
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from cli import UserError
from tfcaps import rem
from tfcaps.files import save_atomically, write_atomically
from training import devices
from training.batches import Batches, measured_at_once
from training.folder import RunFolder
from training.images import Split

# The curves have about this many points, each of this many test images at most.
CURVE_POINTS = 40
_CURVE_SAMPLES = 1000
# What they show of a report, besides accuracies.
_MEASURES = (
    "majority_share learnt entropy_bits type_entropy_bits ceiling_bits "
    "median_keys nonuniform_share whole_share t_score sparsity"
).split()


class BackUp(keras.callbacks.Callback):
    """Keeps weights and optimiser of the last whole epoch.

    Keras' own `BackupAndRestore` writes weights and epoch one after the other;
    stopped in between, it repeats an epoch, and stopped while it deletes its
    files it takes the first weights for the last. Here one file with the epoch
    in its name appears complete, and nothing is deleted before.

    It is written by the first process and read by all.
    """

    def __init__(self, folder: Path):
        super().__init__()
        self.folder = folder

    @property
    def epochs(self) -> int:
        """How many epochs have been trained."""
        return max(self._files(), default=0)

    def on_train_begin(self, logs: Any = None) -> None:
        done = self.epochs
        # As Keras' own callback does: `fit` begins with this epoch. It stays
        # with the model, so one of an earlier `fit` is taken away.
        self.model._initial_epoch = done or None
        if not done:
            return
        if not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        path = self._files()[done]
        try:
            self.model.load_weights(path)
        except (OSError, ValueError, KeyError) as error:
            raise UserError(
                f"the back-up {path} cannot be read: {error}. Remove it to "
                "train this model from its first epoch."
            ) from error

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if devices.process() > 0:
            return
        before = self._files()
        before.pop(epoch + 1, None)
        self.folder.mkdir(exist_ok=True)
        path = self.folder / f"epoch-{epoch + 1}.weights.h5"
        save_weights(self.model, path)
        for old in before.values():
            old.unlink()

    def _files(self) -> dict[int, Path]:
        files = self.folder.glob("epoch-*.weights.h5")
        return {int(p.name.split(".")[0].split("-")[1]): p for p in files}


def save_weights(model: keras.Model, path: Path) -> None:
    """Writes weights and optimiser, complete or not at all."""
    # Writing makes variables, which concern no other process.
    with devices.alone():
        save_atomically(model.save_weights, path)


class StopIfNotFinite(keras.callbacks.Callback):
    """Raises `UserError` before what is not finite is backed up.

    Keras' own `TerminateOnNaN` looks at the loss alone, and not at weights that
    the last step of an epoch has spoilt.
    """

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        for name, value in (logs or {}).items():
            self._check(value, f"{name} became {value} in step {batch + 1}")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if keras.backend.backend() == "jax":
            # During `fit` the live state is outside the variables.
            self.model.jax_state_sync()
        for variable in self.model.trainable_variables:
            self._check(
                ops.convert_to_numpy(variable),
                f"the weight {variable.path!r} became infinite or not a number "
                "in the last step",
            )

    def _check(self, value: Any, what: str) -> None:
        if not np.all(np.isfinite(value)):
            raise UserError(
                f"{what} of epoch {self.epoch + 1}. The training was stopped, "
                "and nothing of this epoch is kept. Try a lower "
                "--learning-rate."
            )


class StopOnValidation(keras.callbacks.Callback):
    """Stops when the validation loss has not fallen for long.

    The losses of all epochs are kept in the file `path`, so that a resumed
    training stops where an uninterrupted one would have stopped; Keras'
    `EarlyStopping` begins anew. The weights of the epoch with the lowest loss
    are kept in the file `best`, ending in `.weights.h5`, if there is to be one.
    """

    def __init__(
        self, batches: Any, path: Path, patience: int, best: Path | None = None
    ):
        super().__init__()
        self.batches = batches
        self.path = path
        self.patience = patience
        self.best = best

    @property
    def losses(self) -> list[float]:
        """The validation loss of each epoch so far."""
        if not self.path.exists():
            return []
        return list(json.loads(self.path.read_text("utf-8")))

    def epochs(self, most: int) -> int:
        """Returns how many epochs to train, as far as that is known."""
        losses = self.losses
        for done in range(1, len(losses) + 1):
            if self._is_over(losses[:done]):
                return min(done, most)
        return most

    def on_epoch_end(
        self, epoch: int, logs: dict[str, float] | None = None
    ) -> None:
        values = self.model.evaluate(self.batches, verbose=0, return_dict=True)
        # An epoch that is repeated after a stop takes the place of its first.
        losses = [*self.losses[:epoch], values["loss"]]
        if devices.process() == 0:
            if self.best is not None and np.argmin(losses) == epoch:
                save_weights(self.model, self.best)
            with write_atomically(self.path, "w") as file:
                json.dump(losses, file)
        if logs is not None:
            logs["val_loss"] = losses[-1]
        if self._is_over(losses):
            self.model.stop_training = True

    def restore(self, model: keras.Model) -> None:
        """Gives a trained model the weights that were kept, if any were."""
        devices.wait()
        if self.best is not None:
            model.load_weights(self.best)

    def _is_over(self, losses: list[float]) -> bool:
        return len(losses) - 1 - int(np.argmin(losses)) >= self.patience


class StepClock(keras.callbacks.Callback):
    """Notes how many `seconds` each step takes."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.seconds: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.started = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        # Keras has waited for the step, because the loss is shown.
        self.seconds.append(time.perf_counter() - self.started)


class Measure(StepClock):
    """Measures a classifier every few epochs, for `metrics.jsonl`.

    It does after the first epoch and the last one too, also where the training
    stops early: what stops it must stand before this callback.
    """

    def __init__(
        self,
        name: str,
        classifier: keras.Model,
        test: Split,
        epochs: int,
        folder: RunFolder,
    ):
        super().__init__()
        draw = np.random.default_rng(0)
        rows = draw.permutation(len(test.labels))[:_CURVE_SAMPLES]
        self.name = name
        self.classifier = classifier
        size = measured_at_once(classifier)
        self.test = Batches(*test, size, rows=rows)
        self.epochs = epochs
        self.folder = folder

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        config = self.folder.config
        self.measured = devices.local_copy(self.classifier)
        with devices.alone():
            self.evaluator = rem.Evaluator(
                self.measured, config.fixed_levels, mode=config.mode
            )

    def on_epoch_end(
        self, epoch: int, logs: dict[str, float] | None = None
    ) -> None:
        logs = {} if logs is None else logs
        every = max(self.epochs // CURVE_POINTS, 1)
        is_on_curve = epoch == 0 or (self.epochs - 1 - epoch) % every == 0
        if not is_on_curve and not self.model.stop_training:
            return
        if self.measured is not self.classifier:
            weights = self.classifier.get_weights()
            with devices.alone():
                self.measured.set_weights(weights)
        with devices.alone():
            report = self.evaluator.run(self.test)
        # Keras shows what is added to the logs beside its progress bar, and
        # TensorBoard has a curve of it.
        logs["entropy_bits"] = report.entropy_bits
        if devices.process() > 0:
            return
        row = {
            "model": self.name,
            "epoch": epoch,
            **{_short(k): float(v) for k, v in logs.items()},
            "test_accuracy": report.accuracy,
            "test_accuracy_quantized": report.accuracy_quantized,
            **{measure: getattr(report, measure) for measure in _MEASURES},
            # The median leaves out the first step, which is compiled.
            "seconds_per_step": statistics.median(self.seconds),
        }
        self.folder.append_metrics(row)


def _short(name: str) -> str:
    """Returns a log's name as if lengths were the only output."""
    return name if name == "lengths_loss" else name.removeprefix("lengths_")

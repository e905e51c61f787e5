"""What a run would do, before anything is written: `--dry-run`."""

import math
import time

import keras

import tfcaps
from training import devices, fit
from training.backup import BackUp
from training.datasets import Data
from training.folder import RunFolder
from training.tables import TITLES

# Steps that are timed, after the first, which is compiled.
_TIMED = 3
# Bytes of a parameter in a file: the model's, and Adam's two moments.
_MODEL_BYTES = 4
_MOMENT_BYTES = 8


def show(data: Data, folder: RunFolder, strategy) -> None:
    """Prints the plan of a run, with its size and an estimate of its time.

    A few steps of each model are trained for it, and forgotten.

    Args:
        data: Images and labels.
        folder: Settings of the run, and where it would go.
        strategy: What `make_strategy` returned.
    """
    config = folder.config
    rows, columns, channels = data.image_shape
    parts = {
        "training": data.train,
        "validation": data.validation,
        "test": data.test,
        **{f"{name} test": part for name, part in data.others.items()},
    }
    counts = [f"{len(labels):,} {name}" for name, (_, labels) in parts.items()]
    print(
        f"data      {data.name}: {', '.join(counts)} images of "
        f"{rows}x{columns}x{channels}, {data.num_classes} classes"
    )
    model = fit.build(data, config, decoder=config.decoder == "joint")
    print(f"network   {config.model}: {model.count_params():,} parameters")
    for layer in model.layers:
        if isinstance(layer, tfcaps.layers.ClassCaps):
            print(
                f"          {layer.name}: {layer.num_capsules} capsules of "
                f"{layer.dim}, {type(layer.routing).__name__}"
            )
    stops = (config.patience, config.stop_accuracy) != (None, None)
    about = "at most about" if stops else "about"
    total = 0.0
    for name in config.model_names:
        epochs = _epochs_left(folder, name)
        if not epochs:
            print(f"training  {TITLES[name]}: has been trained")
            continue
        steps, seconds = _time(name, data, config, strategy)
        total += epochs * steps * seconds
        more = "" if epochs == config.epochs else " more"
        print(
            f"training  {TITLES[name]}: {epochs}{more} epochs of {steps} "
            f"steps of {config.batch_size} images, {1000 * seconds:.0f} ms a "
            f"step, {about} {_duration(epochs * steps * seconds)}"
        )
    kept = len(config.model_names) * _MODEL_BYTES * model.count_params()
    weights = sum(math.prod(v.shape) for v in model.trainable_variables)
    backup = _MODEL_BYTES * model.count_params() + _MOMENT_BYTES * weights
    print(
        f"output    {folder.path}: about {_megabytes(kept)} of models, "
        f"{_megabytes(backup)} more while training"
    )
    begun = folder.path.exists()
    print(
        f"\nTraining takes {about} {_duration(total)}; measuring, figures and "
        "export come on top. "
        + ("Nothing was written." if begun else "No run folder has been made.")
    )


def _epochs_left(folder: RunFolder, name: str) -> int:
    if folder.model_path(name).exists():
        return 0
    return folder.config.epochs - BackUp(folder.backup_path(name)).epochs


def _time(name, data, config, strategy) -> tuple[int, float]:
    """Returns the steps of an epoch, and the seconds of one."""
    with devices.scope(strategy):
        ready = fit.prepare(name, data, config, strategy)
        clock = _Clock()
        count = min(ready.batches.num_batches, _TIMED)
        ready.trained.fit(
            ready.batches,
            epochs=1 + -(-_TIMED // count),
            steps_per_epoch=count,
            shuffle=False,
            verbose=0,
            callbacks=[clock],
        )
    return ready.batches.num_batches, min(clock.seconds[1:])


class _Clock(keras.callbacks.Callback):
    """Notes how long each step takes."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def on_train_batch_begin(self, batch, logs=None):
        self.started = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        # Keras has waited for the step, because the loss is shown.
        self.seconds.append(time.perf_counter() - self.started)


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def _megabytes(size: float) -> str:
    return f"{max(size / 2**20, 0.1):,.1f} MiB"

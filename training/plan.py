"""Tells the cost of a run before anything is written: `--dry-run`."""

import math
import tempfile
import time
from typing import Any

import keras

from tfcaps import graphs, rem
from training import devices, features, networks, starting, train
from training.callbacks import BackUp
from training.configs import Config
from training.datasets import Data
from training.devices import Strategy
from training.folder import RunFolder
from training.tables import TITLES

# Steps that are timed, after the first, which is compiled.
_TIMED = 3
# Pixels that are seen in a training of some minutes, each channel counted.
_LONG = 1e9


def cost(data: Data, folder: RunFolder, strategy: Strategy | None) -> None:
    """Prints how long a long training takes; of a short one, nothing.

    As for `show`, a few steps are trained and forgotten.
    """
    config = folder.config
    epochs = sum(config.of(name).epochs for name in config.trained_names)
    if len(data.train.labels) * math.prod(data.image_shape) * epochs < _LONG:
        return
    total = sum(
        _show_training(name, data, folder, strategy)
        for name in config.trained_names
    )
    print(
        f"Training takes {_about(config)} {_duration(total)} on this machine "
        "(--epochs); --dry-run tells it without training."
    )


def show(data: Data, folder: RunFolder, strategy: Strategy | None) -> None:
    """Prints the plan of a run, with its size and an estimate of its time.

    A few steps of each model are trained for it, and forgotten.
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
    model = networks.build_for(data, config, decoder=config.decoder == "joint")
    if (start := starting.network(config)) is not None:
        model = starting.begin_with(model, start, config)
    print(
        f"network   {config.model}: {model.count_params():,} parameters, "
        f"{rem.multiply_adds(model).total:,} multiply-adds an image"
    )
    total = _show_backbone(model, data, folder)
    for name in config.model_names:
        if folder.model_path(name).exists():
            print(f"training  {TITLES[name]}: has been trained")
        elif name not in config.trained_names:
            print(f"training  {TITLES[name]}: that of {config.start_from}")
        else:
            total += _show_training(name, data, folder, strategy)
    begun = folder.path.exists()
    print(
        f"\nTraining takes {_about(config)} {_duration(total)}; measuring, "
        "figures and export come on top. "
        + ("Nothing was written." if begun else "No run folder has been made.")
    )


def _show_backbone(model: keras.Model, data: Data, folder: RunFolder) -> float:
    """Prints what a backbone does, and returns the seconds of its features."""
    config = folder.config
    layer = features.backbone_of(model)
    if layer is None:
        return 0.0
    rows, columns, channels = layer.model.output_shape[1:]
    print(
        f"backbone  {config.backbone}: {rows}x{columns}x{channels} features, "
        f"{layer.model.count_params():,} parameters, frozen"
    )
    if (why := features.obstacle(model, config)) is not None:
        print(f"          it runs in each step, because {why}")
        return 0.0
    front, _ = graphs.split(model, layer)
    images = data.train.images[: config.batch_size]
    for _ in range(2):  # the first is compiled
        started = time.perf_counter()
        features.maps_of(front, images, config.batch_size)
    count, size = features.size(model, data, config)
    seconds = count * (time.perf_counter() - started) / config.batch_size
    print(
        f"          features of {count:,} images are computed once and kept, "
        f"{features.num_copies(config)} for each training image, about "
        f"{_duration(seconds)}, {max(size / 2**20, 0.1):,.1f} MiB in "
        f"{tempfile.gettempdir()} until the end"
    )
    return seconds


def _show_training(
    name: str, data: Data, folder: RunFolder, strategy: Strategy | None
) -> float:
    """Prints how a model is trained, and returns the seconds."""
    config = folder.config.of(name)
    start = starting.network(config) if name == "rem" else None
    with devices.scope(strategy):
        setup = train.prepare(name, data, config, strategy, start)
        seconds = _step_seconds(setup)
    steps = setup.batches.num_batches
    done = BackUp(folder.backup_path(name)).epochs
    left, total = config.epochs - done, 0.0
    if name == "baseline" and config.trials > 1 and not done:
        print(
            f"training  {TITLES[name]}: {config.trials} starts, of which half "
            f"go on after an epoch, and the best after {train.TRIAL_EPOCHS} "
            "(--trials)"
        )
        others = train.epochs_of_starts(config) - train.TRIAL_EPOCHS
        total += others * steps * seconds
    print(
        f"training  {TITLES[name]}: {left}{' more' if done else ''} epochs of "
        f"{steps} steps of {config.batch_size} images, {1000 * seconds:.0f} ms "
        f"a step, {_about(config)} {_duration(left * steps * seconds)}"
    )
    return total + left * steps * seconds


def _step_seconds(setup: train.Setup) -> float:
    """Trains a few steps, and returns the seconds of the fastest."""
    clock = _Clock()
    count = min(setup.batches.num_batches, _TIMED)
    setup.trained.fit(
        setup.batches,
        epochs=1 + -(-_TIMED // count),
        steps_per_epoch=count,
        shuffle=False,
        verbose=0,
        callbacks=[clock],
    )
    return min(clock.seconds[1:])


class _Clock(keras.callbacks.Callback):
    """Notes how long each step takes."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.started = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        # Keras has waited for the step, because the loss is shown.
        self.seconds.append(time.perf_counter() - self.started)


def _about(config: Config) -> str:
    """Returns how exact the time is."""
    return "about" if config.patience is None else "at most about"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"

"""Tells the cost of a run before anything is written: `--dry-run`."""

import math
import tempfile
import time

import keras
import numpy as np

from tfcaps import graphs, rem
from training import devices, features, networks, starting, train
from training.callbacks import BackUp
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

    A few steps of each model are trained for it, and forgotten.
    """
    config = folder.config
    epochs = sum(config.of(name).epochs for name in config.trained_names)
    if len(data.train.labels) * math.prod(data.image_shape) * epochs >= _LONG:
        print(
            f"Training takes {_training(data, folder, strategy)} on this "
            "machine (--epochs); --dry-run tells it without training."
        )


def show(data: Data, folder: RunFolder, strategy: Strategy | None) -> None:
    """Prints the plan of a run, with its size and an estimate of its time."""
    config = folder.config
    parts = {
        "training": data.train,
        "validation": data.validation,
        "test": data.test,
        **{f"{name} test": part for name, part in data.others.items()},
    }
    counts = [f"{len(labels):,} {name}" for name, (_, labels) in parts.items()]
    print(
        f"data      {data.name}: {', '.join(counts)} images of "
        f"{'x'.join(map(str, data.image_shape))}, {data.num_classes} classes"
    )
    model = networks.build_for(data, config, decoder=config.decoder == "joint")
    if (start := starting.network(config)) is not None:
        model = starting.begin_with(model, start)
    print(
        f"network   {config.model}: {model.count_params():,} parameters, "
        f"{rem.multiply_adds(model).total:,} multiply-adds an image"
    )
    time_of_training = _training(data, folder, strategy)
    print(
        f"\nTraining takes {time_of_training}; measuring, figures and export "
        "come on top. "
        + (
            "Nothing was written."
            if folder.path.exists()
            else "No run folder has been made."
        )
    )


def _training(data: Data, folder: RunFolder, strategy: Strategy | None) -> str:
    """Prints how each model is trained, and returns the time of all."""
    config = folder.config
    about = "about" if config.patience is None else "at most about"
    total = 0.0
    for name in config.model_names:
        title = f"training  {TITLES[name]}:"
        if folder.model_path(name).exists():
            print(f"{title} has been trained")
            continue
        if name not in config.trained_names:
            print(f"{title} that of {config.start_from}")
            continue
        settings = config.of(name)
        start = starting.network(config) if name == "rem" else None
        with devices.scope(strategy):
            setup = train.prepare(name, data, settings, strategy, start)
            seconds = _step_seconds(setup)
        if not total:
            total += _features(setup)
        steps = setup.batches.num_batches
        done = BackUp(folder.backup_path(name)).epochs
        left = settings.epochs - done
        print(
            f"{title} {left}{' more' if done else ''} epochs of {steps} steps "
            f"of {config.batch_size} images, {1000 * seconds:.0f} ms a step, "
            f"{about} {_duration(left * steps * seconds)}"
        )
        if name == "baseline" and config.trials > 1 and not done:
            print(
                f"{title} {config.trials} starts, of which half go on after an "
                f"epoch, and the best after {train.TRIAL_EPOCHS} (--trials)"
            )
            left += train.epochs_of_starts(settings) - train.TRIAL_EPOCHS
        total += left * steps * seconds
    return f"{about} {_duration(total)}"


def _features(setup: train.Setup) -> float:
    """Prints what a backbone does, and returns the seconds of its features."""
    model, config = setup.model, setup.config
    layer = features.backbone_of(model)
    if layer is None:
        return 0.0
    shape = layer.model.output_shape[1:]
    print(
        f"backbone  {config.backbone}: {'x'.join(map(str, shape))} features, "
        f"{layer.model.count_params():,} parameters, frozen"
    )
    if setup.network is model:
        print(
            "          it runs in each step, because "
            f"{features.obstacle(model, config)}"
        )
        return 0.0
    front, _ = graphs.split(model, layer)
    images = np.zeros((config.batch_size, *front.input_shape[1:]), np.float32)
    for _ in range(2):  # the first is compiled
        started = time.perf_counter()
        features.maps_of(front, images, config.batch_size)
    seconds = (time.perf_counter() - started) / config.batch_size
    data = setup.data
    parts = (data.train, data.validation, data.test)
    count = sum(len(split.labels) for split in parts)
    size = count * features.BYTES * math.prod(shape) / 2**20
    print(
        f"          features of {count:,} images are computed once and kept, "
        f"about {_duration(count * seconds)}, {max(size, 0.1):,.1f} MiB in "
        f"{tempfile.gettempdir()} until the end"
    )
    return count * seconds


def _step_seconds(setup: train.Setup) -> float:
    """Trains a few steps, and returns the seconds of the fastest."""
    began: list[float] = []
    seconds: list[float] = []
    clock = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: began.append(
            time.perf_counter()
        ),
        # Keras has waited for the step, because the loss is shown.
        on_train_batch_end=lambda batch, logs: seconds.append(
            time.perf_counter() - began[-1]
        ),
    )
    count = min(setup.batches.num_batches, _TIMED)
    setup.trained.fit(
        setup.batches,
        epochs=1 + -(-_TIMED // count),
        steps_per_epoch=count,
        shuffle=False,
        verbose=0,
        callbacks=[clock],
    )
    return min(seconds[1:])


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"

"""Tells the cost of a run before anything is written: `--dry-run`."""

import math
import time
from typing import Any

import keras

from tfcaps import rem
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
# Bytes of a parameter in a file: the model's, and Adam's two moments.
_MODEL_BYTES = 4
_MOMENT_BYTES = 8


def cost(data: Data, folder: RunFolder, strategy: Strategy | None) -> None:
    """Prints how long a long training takes; of a short one, nothing.

    As for `show`, a few steps are trained and forgotten.
    """
    config = folder.config
    epochs = sum(config.of(name).epochs for name in config.trained_names)
    seen = len(data.train.labels) * math.prod(data.image_shape) * epochs
    if seen < _LONG:
        return
    total = sum(
        _show_training(name, data, folder, strategy)
        for name in config.trained_names
    )
    about = _about(config, *config.trained_names)
    print(
        f"Training takes {about} {_duration(total)} on this machine "
        "(--epochs); --dry-run tells it without training."
    )


def show(data: Data, folder: RunFolder, strategy: Strategy | None) -> None:
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
    kept = len(config.model_names) * _MODEL_BYTES * model.count_params()
    weights = sum(math.prod(v.shape) for v in model.trainable_variables)
    backup = _MODEL_BYTES * model.count_params() + _MOMENT_BYTES * weights
    print(
        f"output    {folder.path}: about {_megabytes(kept)} of models, "
        f"{_megabytes(backup)} more while training"
    )
    begun = folder.path.exists()
    about = _about(config, *config.trained_names)
    print(
        f"\nTraining takes {about} {_duration(total)}; measuring, figures and "
        "export come on top. "
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
    kept = features.plan(model, data, config)
    if kept is None:
        why = features.obstacle(model, config)
        print(f"          it runs in each step, because {why}")
        return 0.0
    count, size, one_batch = kept
    one_batch()
    started = time.perf_counter()
    one_batch()
    seconds = count * (time.perf_counter() - started) / config.batch_size
    print(
        f"          features of {count:,} images are computed once and kept, "
        f"{features.num_copies(config)} for each training image, about "
        f"{_duration(seconds)}, {_megabytes(size)} in {folder.path} until the "
        "end"
    )
    return seconds


def _show_training(
    name: str,
    data: Data,
    folder: RunFolder,
    strategy: Strategy | None,
) -> float:
    """Prints how a model is trained, and returns the seconds."""
    config = folder.config.of(name)

    def trained(backup: str) -> int:
        return BackUp(folder.backup_path(backup)).epochs

    begun = sum(
        trained(train.backup_name(name, k)) > 0 for k in range(1, config.rounds)
    )
    done = trained(train.backup_name(name, begun)) - begun * config.epochs
    tuned = trained(f"{name}-tuned") - (begun + 1) * config.epochs
    timed = _time(name, data, config, strategy)
    total = 0.0
    if name == "baseline" and config.trials > 1 and not done:
        (steps, seconds), *_ = timed
        print(
            f"training  {TITLES[name]}: {config.trials} starts, of which half "
            f"go on after an epoch, and the best after {train.TRIAL_EPOCHS} "
            "(--trials)"
        )
        others = train.epochs_of_starts(config) - train.TRIAL_EPOCHS
        total += others * steps * seconds
    for what, epochs, past, (steps, seconds) in zip(
        ("", ", fine-tuning"),
        (config.epochs, config.fine_tune_epochs),
        (done, max(tuned, 0)),
        timed,
        strict=False,
    ):
        left = epochs - past
        more = " more" if past or begun else ""
        print(
            f"training  {TITLES[name]}{what}: {left}{more} epochs of {steps} "
            f"steps of {config.batch_size} images, {1000 * seconds:.0f} ms a "
            f"step, {_about(config, name)} {_duration(left * steps * seconds)}"
        )
        total += left * steps * seconds
    return total


def _time(
    name: str, data: Data, config: Config, strategy: Strategy | None
) -> list[tuple[int, float]]:
    """Returns the steps of an epoch, and the seconds of one.

    Of the capsules, and of the fine-tuning if there is to be any.
    """
    with devices.scope(strategy):
        setup = train.prepare(
            name,
            data,
            config,
            strategy,
            lambda model: features.with_dummy_features(model, data, config),
            starting.network(config) if name == "rem" else None,
        )
        timed = [_time_of(setup)]
        if config.fine_tune_epochs:
            joint = config.decoder == "joint"
            model = networks.build_for(data, config, decoder=joint)
            with train.tuned(name, model, data, config, strategy) as setup:
                timed.append(_time_of(setup))
    return timed


def _time_of(setup: train.Setup) -> tuple[int, float]:
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
    return setup.batches.num_batches, min(clock.seconds[1:])


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


def _about(config: Config, *names: str) -> str:
    """Returns how exact the time of models is."""
    if config.stops_early:
        return "at most about"
    more = config.rounds > 1 and "baseline" in names
    return "at least about" if more else "about"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def _megabytes(size: float) -> str:
    return f"{max(size / 2**20, 0.1):,.1f} MiB"

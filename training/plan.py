"""Tells the cost of a run before anything is written: `--dry-run`."""

import math
import statistics
import tempfile
import time

import keras
import numpy as np

from tfcaps import graphs, rem
from tfcaps.callbacks import HardenParts
from tfcaps.parts import ConstellationModel
from training import devices, features, models, networks, starting, train
from training.batches import ON_BACKBONE
from training.callbacks import CURVE_POINTS, BackUp, StepClock
from training.datasets import Data
from training.devices import Strategy
from training.folder import RunFolder
from training.tables import TITLES

# Steps that are timed, after the first, which is traced.
_TIMED = 3
# A run traces as much as so many first steps: for each model its step and what
# measures it, and once what is drawn and exported.
_MODEL, _END = 4, 2
# Images that are looked at for each model, besides two times the test images
# and those of the curves; an image of a step counts as three.
_LOOKED_AT, _CURVES = 10_000, 1_500
# Photos that a backbone looks at again, shifted and changed; where it runs many
# times for one, of which most windows are known. Seconds of estimating parts.
_AGAIN, _WINDOWS_AGAIN, _ESTIMATING = 3_500, 700, 120


def show(
    data: Data, folder: RunFolder, strategy: Strategy | None, model: keras.Model
) -> None:
    """Prints the plan of a run, with its size and an estimate of its time."""
    parts = {
        "training": data.train,
        "validation": data.validation,
        "test": data.test,
        **{f"{name} test": part for name, part in data.others.items()},
    }
    counts = [f"{len(labels):,} {name}" for name, (_, labels) in parts.items()]
    parameters, adds = model.count_params(), rem.multiply_adds(model).total
    print(
        f"data      {data.name}: {', '.join(counts)} images of "
        f"{'x'.join(map(str, data.image_shape))}, {data.num_classes} classes\n"
        f"network   {folder.config.model}: {parameters:,} parameters, "
        f"{adds:,} multiply-adds an image"
    )
    training, others = _times(data, folder, strategy)
    about = "about" if folder.config.patience is None else "at most about"
    more = f"about {_duration(others)} more" if others else "come on top"
    nothing = "No run folder has been made."
    print(
        f"\nTraining takes {about} {_duration(training)}; measuring, figures "
        f"and export {more}. "
        + ("Nothing was written." if folder.path.exists() else nothing)
    )


def _times(
    data: Data, folder: RunFolder, strategy: Strategy | None
) -> tuple[float, float]:
    """Prints how models are trained; returns seconds of it, and of the rest."""
    config, tests = folder.config, len(data.test.labels)
    about = "about" if config.patience is None else "at most about"
    total = others = first = 0.0
    for name in config.model_names:
        title = f"training  {TITLES[name]}:"
        if folder.model_path(name).exists():
            print(f"{title} has been trained")
            continue
        if name not in config.trained_names:
            print(f"{title} that of {config.start_from}")
            continue
        if models.network(config.model).loss == "plan":
            images = len(data.train.labels) + len(data.test.labels)
            model = networks.build_for(data, config)
            each = _feature_seconds(model, 1)
            # The whole image comes on top of its windows.
            total += 1.2 * images * each + _ESTIMATING
            others += _WINDOWS_AGAIN * each
            print(f"{title} in one pass, then about two minutes")
            continue
        settings = config.of(name)
        with devices.scope(strategy):
            start = starting.network(config) if name == "rem" else None
            setup = train.prepare(name, data, settings, strategy, start)
            first, seconds = _step_seconds(setup)
        if not total:
            each, total = _backbone(setup)
            others += _AGAIN * each
        steps = setup.batches.num_batches
        points = min(settings.epochs, CURVE_POINTS)
        looked_at = _LOOKED_AT + 2 * tests + points * _CURVES
        others += _MODEL * first + looked_at * seconds / (3 * config.batch_size)
        done = BackUp(folder.path / f"backup-{name}").epochs
        left = (settings.epochs - done) * steps * seconds
        why = ""
        if name == "rem" and config.rem_epochs:
            why = " (--rem-epochs; --epochs is the baseline's)"
        elif config.backbone:
            why = " (--epochs, the same for any number of photos)"
        print(
            f"{title} {settings.epochs - done}{' more' if done else ''} epochs"
            f"{why} of {steps} steps of {config.batch_size} images, "
            f"{1000 * seconds:.0f} ms a step, {about} {_duration(left)}"
        )
        total += left
    return total, others + _END * first


def _backbone(setup: train.Setup) -> tuple[float, float]:
    """Prints what a backbone does; returns seconds of a photo, and of all."""
    model, config, data = setup.full_model, setup.config, setup.data
    layer = features.backbone_of(model)
    if layer is None:
        return 0.0, 0.0
    head = f"backbone  {config.backbone}, frozen: "
    if setup.classifier is model:
        print(f"{head}in each step, because {features.obstacle(model, config)}")
        return 0.0, 0.0
    splits = data.train, data.validation, data.test
    count = sum(len(split.labels) for split in splits)
    each = _feature_seconds(model, ON_BACKBONE)
    seconds = count * each
    shape = data.image_shape  # of the features
    print(
        f"{head}features {'x'.join(map(str, shape))} of {count:,} images are "
        f"computed once, about {_duration(seconds)}, and kept until the end, "
        f"{count * features.BYTES * math.prod(shape) / 2**20:,.1f} MiB in "
        f"{tempfile.gettempdir()}"
    )
    return each, seconds


def _feature_seconds(model: keras.Model, batch_size: int) -> float:
    """Returns the seconds of an image in the model's backbone."""
    front, _ = graphs.split(model, features.backbone_of(model))
    images = np.zeros((batch_size, *front.input_shape[1:]), np.float32)
    for _ in range(2):  # the first is compiled
        started = time.perf_counter()
        features.maps_of(front, images, batch_size)
    return (time.perf_counter() - started) / batch_size


def _step_seconds(setup: train.Setup) -> tuple[float, float]:
    """Trains a few steps; returns seconds of the first, and of the others."""
    clock = StepClock()
    callbacks: list[keras.callbacks.Callback] = [clock]
    if isinstance(setup.training_model, ConstellationModel):
        callbacks.append(HardenParts(0.0))  # in place of blueprints
    count = min(setup.batches.num_batches, _TIMED)
    setup.training_model.fit(
        setup.batches,
        epochs=1 + -(-_TIMED // count),
        steps_per_epoch=count,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    )
    return clock.seconds[0], statistics.median(clock.seconds[1:])


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"

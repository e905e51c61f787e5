"""Trains one model of a run, the baseline or REM: the whole loop."""

import dataclasses
import shutil
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np

import tfcaps
from cli import UserError, progress
from tfcaps import rem
from tfcaps.parts import ConstellationModel
from training import (
    devices,
    features,
    models,
    networks,
    objectives,
    starting,
    summary,
)
from training.batches import Batches, stream, training_batches
from training.callbacks import (
    BackUp,
    Measure,
    StopIfNotFinite,
    StopOnValidation,
)
from training.configs import Config
from training.datasets import Data
from training.devices import Strategy
from training.folder import RunFolder
from training.images import Array


class Setup(NamedTuple):
    """A model that is compiled and has its batches.

    On a frozen backbone whose features are cached, all but the `full_model`
    begin behind that.
    """

    full_model: keras.Model
    training_model: keras.Model  # with the outputs that losses need
    classifier: keras.Model  # to class lengths alone
    data: Data
    batches: Batches
    config: Config
    changes: list[keras.callbacks.Callback]  # see `objectives.changes`


def train_model(
    name: str,
    data: Data,
    folder: RunFolder,
    strategy: Strategy | None,
    *,
    cache: dict[str, Array] | None = None,
) -> keras.Model | None:
    """Trains a model, or takes it from the folder if that was done before.

    Its name is `"baseline"`, or `"rem"` for pruning and decay; `cache` is as in
    `features.cache_features`.

    Returns:
        The trained model, stripped of pruning, compacted if that was
        structured, and in float32 whatever it was trained in; None but in the
        first process.
    """
    config = folder.config.of(name)
    is_first = devices.process() == 0
    if folder.model_path(name).exists():
        return folder.load_model(name)
    if name == "baseline" and config.start_from is not None:
        model = starting.take_baseline(folder) if is_first else None
        devices.wait()
        return model
    if models.network(config.model).loss == "plan":
        model = estimated(name, data, folder, {} if cache is None else cache)
        folder.save_model(name, model)
        return model
    with devices.scope(strategy):
        start = None
        if name == "rem" and config.warm_start and config.baseline:
            start = folder.load_model("baseline")
        cache = {} if cache is None else cache
        setup = prepare(name, data, config, strategy, start, cache)
        backup = folder.path / f"backup-{name}"
        epochs, stops, batches = config.epochs, [], setup.batches
        if config.patience is not None:
            validation = Batches(
                *setup.data.validation,
                batches.batch_size,
                arrange=batches.arrange,
            )
            path = folder.path / f"validation-{name}.json"
            best = folder.best_path(name) if name == "baseline" else None
            stop = StopOnValidation(validation, path, config.patience, best)
            epochs, stops = stop.epochs(epochs), [stop]
        classifier = rem.classifier(setup.classifier)
        callbacks = [
            *stops,  # before the epoch's pruning, as in the paper
            *setup.changes,
            Measure(name, classifier, setup.data.test, epochs, folder),
            # Only epochs that are measured and finite.
            BackUp(backup),
        ]
        fit(setup.training_model, batches, callbacks, epochs)
        for stop in stops:
            stop.restore(setup.training_model)
        model = setup.full_model
        if config.dtype_policy != "float32":
            # Its weights are float32 as they are.
            plain = networks.build_for(data, config)
            model = starting.begin_with(plain, model)
        if name == "rem" and config.pruning == "structured":
            model = rem.compact(model)
        if isinstance(setup.training_model, ConstellationModel):
            model = tfcaps.parts.without_spare_types(model)
    if is_first:
        folder.save_model(name, model)
        shutil.rmtree(backup, ignore_errors=True)
        folder.best_path(name).unlink(missing_ok=True)
    devices.wait()
    if not is_first:
        return None
    # What follows runs in one process, on its own device.
    shared = devices.num_shards(strategy) > 1
    return folder.load_model(name) if shared else model


def estimated(
    name: str, data: Data, folder: RunFolder, cache: dict[str, Array]
) -> keras.Model:
    """Returns a network that its own `fit` estimates, in one epoch.

    `cache` has the features of test images, as in `features.cache_features`.
    """
    config = folder.config
    if devices.num_processes() > 1:
        raise UserError(f"{config.model} is trained in one process.")
    model = networks.build_for(data, config)
    images, labels = data.train
    print(f"features of {len(labels):,} training images", flush=True)
    try:
        history = model.fit(
            images,
            labels,
            verbose=progress() % 2,
            seed=config.seed,
            cache=folder.path / features.TRAIN,
        )
    except ValueError as error:
        raise UserError(f"{config.model} cannot be trained: {error}") from error
    print(f"features of {len(data.test.labels):,} test images", flush=True)
    path = folder.path / features.TEST
    model.maps(data.test.images, path, verbose=progress() % 2)
    cache |= features.kept(folder.path)
    known, unseen = (
        np.load(folder.path / place / "deep.npy", "r")
        for place in (features.TRAIN, features.TEST)
    )
    model.report["linear_accuracy"] = tfcaps.parts.body_plan.linear_accuracy(
        known, labels, unseen, data.test.labels, data.num_classes
    )
    print(*summary.of_fit(model), sep="\n", flush=True)
    cached = features.cache_features(model, data, config, cache)
    measure = Measure(name, cached.head, cached.data.test, 1, folder)
    measure.set_model(model)
    measure.on_train_begin()
    measure.seconds = history.history["seconds"]
    measure.on_epoch_end(0, {"accuracy": model.report["accuracy"]})
    return model


def prepare(
    name: str,
    data: Data,
    config: Config,
    strategy: Strategy | None,
    start: keras.Model | None = None,
    cache: dict[str, Array] | None = None,
) -> Setup:
    """Builds and compiles a model in the strategy's scope.

    It begins with the weights of the trained network `start`, or draws them;
    `cache` is as in `features.cache_features`, the rest as in `train_model`.
    """
    # The same weights at the start and the same batches for every model.
    keras.utils.set_random_seed(config.seed)
    with devices.dtype_policy(config.dtype_policy):
        full_model = networks.build_for(data, config)
    if start is not None:
        full_model = starting.begin_with(full_model, start)
        # It routes as sharply as that one did in the end.
        config = dataclasses.replace(config, sharpness_start=None)
    cached = features.cache_features(full_model, data, config, cache)
    model = objectives.with_outputs(cached.head, name, config, cached.data)
    batches = training_batches(
        model,
        cached.data,
        config,
        shards=devices.num_shards(strategy),
        process=(devices.process(), devices.num_processes()),
        augment=cached.augment,
    )
    objectives.compile_model(model, name, config, batches.num_batches)
    changes = objectives.changes(model, name, config, cached.data, batches)
    return Setup(
        full_model, model, cached.head, cached.data, batches, config, changes
    )


def fit(
    model: keras.Model,
    batches: Batches,
    callbacks: Sequence[keras.callbacks.Callback],
    epochs: int,
) -> None:
    """Trains a compiled model on its batches."""
    starter = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: batches.start_epoch(epoch)
    )
    # Variables that are made in the first step have it traced twice.
    model.optimizer.build(model.trainable_variables)
    model.fit(
        stream(batches),
        epochs=epochs,
        verbose=progress(),
        shuffle=False,  # the batches have an order of their own
        callbacks=[starter, StopIfNotFinite(), *callbacks],
    )


def train_decoder(
    model: keras.Model, data: Data, folder: RunFolder, strategy: Strategy | None
) -> keras.Model | None:
    """Returns the model with its decoder, or None if there is to be none.

    A decoder on frozen capsules is trained now, or taken from the folder if
    that was done before.
    """
    config = folder.config
    if config.decoder != "frozen":
        return model if config.decoder == "joint" else None
    if folder.model_path("decoder").exists():
        return folder.load_model("decoder")
    print("\nDecoder on the frozen capsules", flush=True)
    keras.utils.set_random_seed(config.seed)
    with devices.scope(strategy):
        # A copy from the file, because freezing changes the layers.
        classifier = folder.load_model(config.model_names[-1])
        arguments = models.network(config.model).decoder
        decoded = tfcaps.models.with_decoder(
            classifier, frozen=True, **arguments
        )
        batches = training_batches(decoded, data, config)
        loss = tfcaps.losses.ReconstructionLoss(objectives.RECONSTRUCTION)
        rate = objectives.learning_rate(config, batches.num_batches)
        decoded.compile(
            keras.optimizers.Adam(rate),
            {"lengths": None, "reconstruction": loss},
        )
        fit(decoded, batches, [], config.epochs)
    folder.save_model("decoder", decoded)
    return decoded

"""Trains one model of a run, the baseline or REM: the whole loop."""

import dataclasses
import json
import math
import shutil
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np

import tfcaps
from cli import UserError, progress
from tfcaps import graphs, rem
from training import (
    devices,
    features,
    models,
    networks,
    objectives,
    pruning,
    starting,
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
from training.image_data import Array

# Starts are compared after so many epochs, by so many batches; their seeds are
# so far apart.
TRIAL_EPOCHS = 2
_TRIAL_BATCHES = 30
_TRIAL_SEEDS = 1000

# ------------------------------------------------------------------ one model


class Setup(NamedTuple):
    """A model that is compiled and has its batches.

    Attributes:
        model: The whole network.
        trained: The same, or a model of its layers with further outputs. On a
            frozen backbone whose features are cached, it begins behind that.
        network: The trainable part, from images or cached features to class
            lengths.
        data: Images and labels, or features and labels.
        batches: The training batches.
        config: Settings of this training.
    """

    model: keras.Model
    trained: keras.Model
    network: keras.Model
    data: Data
    batches: Batches
    config: Config


def train_model(
    name: str,
    data: Data,
    folder: RunFolder,
    strategy: Strategy | None,
    *,
    kept: dict[str, Array] | None = None,
) -> keras.Model | None:
    """Trains a model, or takes it from the folder if that was done before.

    Args:
        name: `"baseline"`, or `"rem"` for pruning and decay.
        data: Images and labels.
        folder: Settings of the run, and where the model, its back-up and its
            metrics go.
        strategy: What `make_strategy` returned.
        kept: Features that the models of a run share, see
            `features.cache_features`. Defaults to none yet.

    Returns:
        The trained model, stripped of pruning, compacted if that was
        structured, and in float32 whatever it was trained in; None but in the
        first process.

    Raises:
        UserError: If the loss becomes infinite or not a number.
    """
    config = folder.config.of(name)
    if folder.model_path(name).exists():
        return folder.load_model(name)
    if name == "baseline" and config.start_from is not None:
        is_first = devices.process() == 0
        model = starting.take_baseline(folder, data) if is_first else None
        devices.wait()
        return model
    start = None
    if name == "rem" and config.warm_start and "baseline" in config.model_names:
        start = folder.load_model("baseline")
        # It routes as sharply as the baseline did in the end.
        config = dataclasses.replace(
            config, sharpness_start=None, width_start=None
        )
    with devices.scope(strategy):
        kept = {} if kept is None else kept
        setup = prepare(name, data, config, strategy, start, kept)
        backup, epochs, stops = name, config.epochs, []
        if name == "baseline" and config.trials > 1:
            backup = _best_start(setup, data, folder)
        if config.patience is not None:
            stops = [stop_on_validation(name, folder, setup)]
            epochs = stops[0].epochs(epochs)
        encoder = rem.encoder(setup.network)
        callbacks = [
            *stops,  # before the epoch's pruning, as in the paper
            *objectives.changes(setup.trained, config, setup.batches),
            Measure(name, encoder, setup.data.test, epochs, folder),
            # Only epochs that are measured and finite.
            BackUp(folder.path / f"backup-{backup}"),
        ]
        fit(setup.trained, setup.batches, callbacks, epochs)
        rem.strip_pruning(setup.trained)
        for stop in stops:
            stop.restore(setup.trained)
        model = setup.model
        if config.dtype_policy != "float32":
            # Its weights are float32 as they are.
            plain = networks.build_for(data, config)
            model = starting.begin_with(plain, model)
        if name == "rem" and config.pruning == "structured":
            model = rem.compact(model)
        if models.network(config.model).loss == "evidence":
            model = tfcaps.models.without_spare_types(model)
    if devices.process() == 0:
        folder.save_model(name, model)
        # Those of its starts too.
        for backed_up in list(folder.path.glob(f"backup-{name}*")):
            shutil.rmtree(backed_up, ignore_errors=True)
        folder.best_path(name).unlink(missing_ok=True)
    devices.wait()
    if devices.process() > 0:
        return None
    # What follows runs in one process, on its own device.
    shared = devices.num_shards(strategy) > 1
    return folder.load_model(name) if shared else model


def prepare(
    name: str,
    data: Data,
    config: Config,
    strategy: Strategy | None,
    start: keras.Model | None = None,
    kept: dict[str, Array] | None = None,
) -> Setup:
    """Builds and compiles a model in the strategy's scope, and begins pruning.

    Args:
        name: As in `train_model`.
        data: Images and labels.
        config: Settings of this training.
        strategy: What `make_strategy` returned.
        start: A trained network whose weights it begins with. Defaults to
            `None`, which draws them.
        kept: As in `features.cache_features`. Defaults to `None`.
    """
    # The same weights at the start and the same batches for every model.
    keras.utils.set_random_seed(config.seed)
    with devices.dtype_policy(config.dtype_policy):
        model = networks.build_for(data, config)
    if start is not None:
        model = starting.begin_with(model, start)
    cached = features.cache_features(model, data, config, kept)
    trained = objectives.with_outputs(cached.head, name, config, cached.data)
    batches = training_batches(
        trained,
        cached.data,
        config,
        shards=devices.num_shards(strategy),
        process=(devices.process(), devices.num_processes()),
        augment=cached.augment,
    )
    objectives.compile_model(
        trained, name, config, batches.num_batches, cached.head
    )
    if name == "rem":
        pruning.begin(trained, config, cached.data, batches)
    return Setup(model, trained, cached.head, cached.data, batches, config)


def fit(
    model: keras.Model,
    batches: Batches,
    callbacks: Sequence[keras.callbacks.Callback],
    epochs: int,
) -> None:
    """Trains a compiled model on its batches.

    Raises:
        UserError: If its loss or a weight becomes infinite or not a number.
    """
    starter = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: batches.start_epoch(epoch)
    )
    model.fit(
        stream(batches),
        epochs=epochs,
        verbose=progress(),
        shuffle=False,  # the batches have an order of their own
        callbacks=[starter, StopIfNotFinite(), *callbacks],
    )


def stop_on_validation(
    name: str, folder: RunFolder, setup: Setup
) -> StopOnValidation:
    """Returns what ends the training of a model by its validation images.

    Raises:
        UserError: If there are no validation images.
    """
    batches, split = setup.batches, setup.data.validation
    if not len(split.labels):
        raise UserError(
            "patience needs validation images; give --validation a share "
            "above 0."
        )
    return StopOnValidation(
        Batches(*split, batches.batch_size, arrange=batches.arrange),
        folder.path / f"validation-{name}.json",
        patience=int(folder.config.patience or 0),
        best=folder.best_path(name) if name == "baseline" else None,
    )


# ------------------------------------------- more than one training for a model


def _best_start(setup: Setup, data: Data, folder: RunFolder) -> str:
    """Trains from several starts, and chooses the one of the lowest loss.

    Which type of part stands for what is decided in the first epochs, and may
    be decided badly: two kinds of parts share a type, and another is split. The
    loss of some training images tells, as narrow and as hard as the network is
    in the end, without any label of a part. After each epoch half of the starts
    go on: successive halving, Jamieson and Talwalkar, 2016,
    https://arxiv.org/abs/1502.07943

    Returns:
        The name of the back-up of the best start, from which to train on.
    """
    config, model = setup.config, setup.trained
    path = folder.path / "trials.json"
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    model.optimizer.build(model.trainable_variables)
    fresh = [np.array(v) for v in model.optimizer.variables]
    first = model.get_weights()
    starts = list(range(1, config.trials + 1))
    for epoch in range(1, min(TRIAL_EPOCHS, config.epochs) + 1):
        losses = known.setdefault(f"epoch {epoch}", {})
        for number in starts:
            if str(number) in losses:
                continue
            told = f"start {number} of {config.trials}, epoch {epoch}"
            print(f"\n{told}", flush=True)
            weights = first
            if number > 1:
                weights = _other_weights(setup, data, number)
            model.set_weights(weights)
            for variable, value in zip(
                model.optimizer.variables, fresh, strict=True
            ):
                variable.assign(value)
            # It takes what the start has learnt in the epochs before.
            backup = BackUp(folder.path / f"backup-baseline-start-{number}")
            changes = objectives.changes(model, config, setup.batches)
            fit(model, setup.batches, [*changes, backup], epoch)
            losses[str(number)] = _loss_of_start(setup)
            if devices.process() == 0:
                folder.write_json(path.name, known)
        told = ", ".join(f"{losses[str(n)]:.3f} ({n})" for n in starts)
        print(f"\nlosses of the starts after epoch {epoch}: {told}", flush=True)
        best = sorted(starts, key=lambda number: losses[str(number)])
        starts = sorted(best[: max(len(starts) // 2, 1)])
    print(f"\nstart {best[0]} is trained on", flush=True)
    return f"baseline-start-{best[0]}"


def _other_weights(setup: Setup, data: Data, number: int) -> list[np.ndarray]:
    """Draws the weights of a start."""
    config = setup.config
    keras.utils.set_random_seed(config.seed + _TRIAL_SEEDS * (number - 1))
    drawn = networks.build_for(data, config)
    drawn = objectives.with_outputs(drawn, "baseline", config, data)
    return drawn.get_weights()


def _loss_of_start(setup: Setup) -> float:
    layer = graphs.last_routed_layer(setup.network)
    before = np.array(layer.log_width)
    layer.log_width.assign(math.log(layer.routing.width))
    setup.batches.start_epoch(0)
    setup.trained.reset_metrics()
    for index in range(min(_TRIAL_BATCHES, setup.batches.num_batches)):
        values = setup.trained.test_on_batch(
            *setup.batches[index], return_dict=True
        )
    layer.log_width.assign(before)
    return float(values["loss"])


# --------------------------------------------------------- beside the capsules


def train_dense_head(
    data: Data, folder: RunFolder, kept: dict[str, Array]
) -> float:
    """Returns the test accuracy of a plain convolutional network.

    It has the layers of the capsule network up to its first capsules and a
    dense layer in their place, no more parameters in all, and is trained alike.
    Where it is right and the capsules are not, the pictures can be learnt, and
    the capsules are what to look at.

    What is measured stands in the run folder's `dense_head.json`, with the
    accuracies on the other test sets, and is read from there if it was measured
    before; the network is in `dense_head.keras`.
    """
    path = folder.path / "dense_head.json"
    if path.exists():
        return json.loads(path.read_text("utf-8"))["accuracy"]
    config = folder.config
    print(f"\nDense head on {data.name}, to compare with", flush=True)
    keras.utils.set_random_seed(config.seed)
    model = networks.build_for(data, config, decoder=False)
    model = networks.with_dense_head(model)
    head, seen, augment = features.cache_features(model, data, config, kept)
    batches = training_batches(head, seen, config, augment=augment)
    rate = objectives.learning_rate(config, batches.num_batches)
    head.compile(
        keras.optimizers.Adam(rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    fit(head, batches, [], config.epochs)
    right, *others = (
        float(np.mean(np.argmax(logits, axis=-1) == split.labels))
        for split in (data.test, *data.others.values())
        for logits in [model.predict(Batches(*split, 256), verbose=0)]
    )
    tests = dict(zip(data.others, others, strict=True))
    for name, share in tests.items():
        print(f"Dense head, {name} images: {share:.2%} right.", flush=True)
    folder.save_model("dense_head", model)
    measured = {"accuracy": right, "parameters": model.count_params()}
    folder.write_json(path.name, {**measured, "tests": tests})
    return right


def train_decoder(
    model: keras.Model,
    data: Data,
    folder: RunFolder,
    strategy: Strategy | None,
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
        encoder = folder.load_model(config.model_names[-1])
        arguments = models.network(config.model).decoder
        decoded = tfcaps.models.with_decoder(encoder, frozen=True, **arguments)
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

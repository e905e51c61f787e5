"""Trains one model of a run, with or without REM."""

import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

import tfcaps
from cli import UserError
from tfcaps import rem
from training import (
    backbone,
    callbacks,
    devices,
    features,
    fine_tuning,
    models,
    networks,
    objectives,
    pruning,
    rounds,
    starting,
    trials,
)
from training.backup import BackUp
from training.batches import Batches, repeated
from training.configs import Config
from training.datasets import Data, channel_statistics
from training.devices import Strategy
from training.feeding import stream, training_batches
from training.folder import RunFolder
from training.measure import Measure
from training.progress import progress
from training.ready import Ready
from training.stopping import StopOnValidation
from training.tensorboard import TensorBoard

# Images from which the templates of parts are taken.
_TEMPLATE_SAMPLES = 500


def train(
    name: str,
    data: Data,
    folder: RunFolder,
    strategy: Strategy | None,
    *,
    tensorboard: bool = False,
) -> keras.Model | None:
    """Trains a model, or takes it from the folder if that was done before.

    Args:
        name: `"baseline"`, or `"rem"` for pruning and decay.
        data: Images and labels.
        folder: Settings of the run, and where the model, its back-up and its
            metrics go.
        strategy: What `make_strategy` returned.
        tensorboard: Write logs for TensorBoard. Defaults to `False`.

    Returns:
        The trained model, stripped of pruning, compacted if that was
        structured, and in float32 whatever it was trained in; None but in the
        first process.

    Raises:
        UserError: If the loss becomes infinite or not a number.
    """
    config = folder.config.of(name)
    path = folder.model_path(name)
    if path.exists():
        return folder.load_model(name)
    if name == "baseline" and config.start_from is not None:
        return _take_baseline(folder, data)
    start = None
    if name == "rem" and config.warm_start and "baseline" in config.model_names:
        start = folder.load_model("baseline")
        # It routes as sharply as the baseline did in the end.
        config = dataclasses.replace(
            config, sharpness_start=None, width_start=None
        )

    def keep(model: keras.Model) -> features.Kept | None:
        return features.keep(model, data, config, folder.path, progress() % 2)

    with devices.scope(strategy):
        ready = prepare(name, data, config, strategy, keep, start)
        title = name
        if name == "baseline" and config.trials > 1:

            def draw(seed: int) -> list[Any]:
                keras.utils.set_random_seed(seed)
                drawn = build(data, config, decoder=config.decoder == "joint")
                return _to_train(drawn, name, config, data).get_weights()

            title = trials.best(name, ready, folder, draw)
        stops, epochs = [], config.epochs
        if (config.patience, config.stop_accuracy) != (None, None):
            validation = _validation_batches(ready)
            stops.append(callbacks.stop_on_validation(name, folder, validation))
            epochs = stops[0].epochs(epochs)

        _fit(
            name,
            ready,
            folder,
            (0, epochs),
            stops,
            backup=title,
            tensorboard=tensorboard,
        )
        for stop in stops:
            stop.restore(ready.trained)
        done = 1
        if name == "baseline":
            done = _train_on(ready, folder, tensorboard=tensorboard)
        if config.fine_tune_epochs:
            print("\nfine-tuning the whole network", flush=True)
            tuning = fine_tuning.settings(config)
            with tuned(name, ready.model, data, tuning, strategy) as ready:
                first = done * config.epochs
                _fit(
                    name,
                    ready,
                    folder,
                    (first, first + tuning.epochs),
                    backup=fine_tuning.title(name),
                    tensorboard=tensorboard,
                )
        model = ready.model
        if config.dtype_policy != "float32":
            model = devices.in_float32(model)
        if name == "rem" and config.pruning == "structured":
            model = rem.compact(model)
    if devices.process() == 0:
        folder.save_model(name, model)
        for kept in folder.backups(name):
            shutil.rmtree(kept, ignore_errors=True)
        folder.best_path(name).unlink(missing_ok=True)
    devices.wait()
    if devices.process() > 0:
        return None
    # What follows runs in one process, on its own device.
    shared = devices.num_shards(strategy) > 1
    return folder.load_model(name) if shared else model


def _take_baseline(folder: RunFolder, data: Data) -> keras.Model | None:
    """Returns what another run has trained, in the first process."""
    model = None
    if devices.process() == 0:
        model = starting.take_baseline(folder, data)
    devices.wait()
    return model


def _fit(
    name: str,
    ready: Ready,
    folder: RunFolder,
    span: tuple[int, int],
    stops: Sequence[StopOnValidation] = (),
    *,
    backup: str | None = None,
    tensorboard: bool,
) -> None:
    """Trains from an epoch to another, and skips what has been done."""
    first, last = span
    config = folder.config.of(name)
    tuned = 0 if first else config.fine_tune_epochs
    whole = dataclasses.replace(config, epochs=last + tuned)
    measure = Measure(
        name,
        rem.encoder(ready.network),
        ready.data.test,
        whole,
        folder.append_metrics,
        folder.save_epoch,
    )
    backed_up = BackUp(folder.backup_path(backup or name))
    logs = []
    if tensorboard and devices.process() == 0:
        logs.append(TensorBoard(folder.path / "tensorboard", name, measure))
    ready.trained.fit(
        stream(ready.batches),
        initial_epoch=first,
        epochs=last,
        verbose=progress(),
        shuffle=False,  # the batches have an order of their own
        callbacks=[
            *stops,  # before the epoch's pruning, as in the paper
            *callbacks.of_training(ready.trained, ready.config, ready.batches),
            measure,
            *logs,
            backed_up,  # only epochs that are measured and finite
        ],
    )
    rem.strip_pruning(ready.trained)


def _train_on(ready: Ready, folder: RunFolder, *, tensorboard: bool) -> int:
    """Trains the baseline for further rounds, and returns how many it has."""
    config = folder.config

    def train_round(number: int) -> None:
        objectives.compile_model(
            ready.trained,
            "baseline",
            config,
            ready.batches.num_batches,
            ready.network,
        )
        first = number * config.epochs
        _fit(
            "baseline",
            ready,
            folder,
            (first, first + config.epochs),
            backup=rounds.title("baseline", number),
            tensorboard=tensorboard,
        )

    validation = _validation_batches(ready)
    return rounds.go_on(ready.trained, validation, train_round, config.rounds)


def prepare(
    name: str,
    data: Data,
    config: Config,
    strategy: Strategy | None,
    keep: Callable[[keras.Model], features.Kept | None] = lambda model: None,
    start: keras.Model | None = None,
) -> Ready:
    """Builds and compiles a model in the strategy's scope, and begins pruning.

    Args:
        name: As in `train`.
        data: Images and labels.
        config: Settings of the run.
        strategy: What `make_strategy` returned.
        keep: From the model to what is trained instead of it, see
            `training/features.py`. Defaults to the model itself.
        start: A trained network whose weights it begins with. Defaults to
            `None`, which draws them.
    """
    # The same weights at the start and the same batches for every model.
    keras.utils.set_random_seed(config.seed)
    with devices.dtype_policy(config.dtype_policy):
        model = build(data, config, decoder=config.decoder == "joint")
    if start is not None:
        model = starting.begin_with(model, start, config)
    kept = keep(model) or features.Kept(model, data, Batches)
    ready = _compiled(name, model, kept, config, strategy)
    if name == "rem":
        pruning.begin(ready.trained, config, ready.data, ready.batches)
    return ready


@contextlib.contextmanager
def tuned(
    name: str,
    model: keras.Model,
    data: Data,
    config: Config,
    strategy: Strategy | None,
) -> Iterator[Ready]:
    """Gives what trains a whole network, its backbone too, in a block.

    Args:
        name: As in `train`.
        model: A network whose capsules are trained.
        data: Images and labels.
        config: What `fine_tuning.settings` returned.
        strategy: What `make_strategy` returned.
    """
    layer = features.backbone_of(model)
    if layer is None:
        raise ValueError(f"{model.name} has no frozen backbone to be tuned.")
    with layer.thawed():
        kept = features.Kept(model, data, Batches)
        ready = _compiled(name, model, kept, config, strategy)
        if name == "rem":
            fine_tuning.keep_pruned(ready.trained)
        yield ready


def _compiled(
    name: str,
    model: keras.Model,
    kept: features.Kept,
    config: Config,
    strategy: Strategy | None,
) -> Ready:
    trained = _to_train(kept.head, name, config, kept.data)
    batches = training_batches(
        trained,
        kept.data,
        config,
        shards=devices.num_shards(strategy),
        process=(devices.process(), devices.num_processes()),
        make=kept.batches,
    )
    objectives.compile_model(
        trained, name, config, batches.num_batches, kept.head
    )
    return Ready(model, trained, batches, kept.head, kept.data, config)


def _to_train(
    network: keras.Model, name: str, config: Config, data: Data
) -> keras.Model:
    """Returns a network with the outputs that it is trained on.

    Args:
        network: From images, or features, to lengths.
        name: As in `train`.
        config: Settings of this training.
        data: What it is trained on.
    """
    if models.network(config.model).loss == "evidence":
        if config.width_start is not None:
            return tfcaps.models.with_templates(network)
        draw = np.random.default_rng(config.seed)
        some = draw.permutation(len(data.train.labels))[:_TEMPLATE_SAMPLES]
        images = data.train.images[np.sort(some)]
        return tfcaps.models.with_templates(network, images)
    counterfactual = any(config.counterfactual_weights)
    if name != "rem" or not (counterfactual or any(config.coupling_weights)):
        return network
    labels = data.train.labels
    seen = len(repeated(labels) if config.balanced else labels)
    ramp = config.coupling_ramp * config.epochs * seen / config.batch_size
    return rem.add_couplings(
        network, ramp_steps=round(ramp), counterfactual=counterfactual
    )


def build(data: Data, config: Config, *, decoder: bool) -> keras.Model:
    """Returns the network of the settings, not compiled.

    Args:
        data: Images and labels.
        config: Settings of the run.
        decoder: Whether it reconstructs images too.

    Raises:
        UserError: If a name is unknown, the images do not fit, or there is no
            such backbone.
    """
    if config.fine_tune_epochs and config.backbone is None:
        raise UserError("--fine-tune needs a --backbone to be fine-tuned.")
    mean, std = config.mean, config.std
    if backbone.is_application(config.backbone):
        mean, std = (), ()  # it scales images as it has learnt to
    elif config.measured:
        mean, std = channel_statistics(data.train.images.pixels)
    network = None
    if config.backbone is not None:
        network = backbone.load(
            config.backbone, config.data_dir, data.image_shape
        )
    return networks.build(
        config.model,
        data.image_shape,
        data.num_classes,
        routing=config.routing,
        part_types=config.part_types,
        backbone=network,
        decoder=decoder,
        mean=mean,
        std=std,
    )


def _validation_batches(ready: Ready) -> Batches:
    batches = ready.batches
    return Batches(
        *ready.data.validation, batches.batch_size, arrange=batches.arrange
    )

"""Trains one model of a run, with or without REM."""

import dataclasses
import math
import shutil
import sys
from typing import NamedTuple

import keras
import numpy as np

import tfcaps
from tfcaps import rem
from tfcaps.cli import UserError
from tfcaps.rem import sharpness
from training import backbone, devices, models, objectives, pruning
from training.augmentation import Augmentation
from training.backup import BackUp
from training.batches import Batches
from training.configs import Config
from training.datasets import Data, channel_statistics
from training.finite import StopIfNotFinite, guarded
from training.folder import RunFolder
from training.measure import Measure
from training.pairs import both_found, share_found
from training.stopping import StopOnValidation
from training.tensorboard import TensorBoard


class Ready(NamedTuple):
    """A model that is ready to be trained.

    Attributes:
        model: The network.
        trained: The same, or a model of its layers with further outputs.
        batches: The training batches.
    """

    model: keras.Model
    trained: keras.Model
    batches: Batches


def train(
    name: str,
    data: Data,
    folder: RunFolder,
    strategy,
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
        The trained model, stripped of pruning and in float32 whatever it was
        trained in; None but in the first process.

    Raises:
        UserError: If the loss becomes infinite or not a number.
    """
    config = folder.config
    path = folder.model_path(name)
    if path.exists():
        return folder.load_model(name)
    with devices.scope(strategy):
        model, trained, batches = prepare(name, data, config, strategy)
        stops, epochs = [], config.epochs
        if (config.patience, config.stop_accuracy) != (None, None):
            stops.append(_stop_on_validation(name, data, folder, batches))
            epochs = stops[0].epochs(epochs)
        measure = Measure(name, rem.encoder(model), data, folder)
        logs = []
        if tensorboard and devices.process() == 0:
            logs.append(TensorBoard(folder.path / "tensorboard", name, measure))
        trained.fit(
            batches,
            epochs=epochs,
            verbose=progress(),
            shuffle=False,  # the batches have an order of their own
            callbacks=[
                *stops,  # before the epoch's pruning, as in the paper
                *_callbacks(trained, config, batches),
                measure,
                *logs,
                # After these: it backs up only epochs that are measured and
                # finite.
                BackUp(folder.backup_path(name)),
            ],
        )
        rem.strip_pruning(trained)
        for stop in stops:
            stop.restore(trained)
        model = _in_float32(model, data, config)
    if devices.process() == 0:
        folder.save_model(name, model)
        shutil.rmtree(folder.backup_path(name), ignore_errors=True)
        folder.best_path(name).unlink(missing_ok=True)
    devices.wait()
    if devices.process() > 0:
        return None
    # What follows runs in one process, on its own device.
    shared = devices.num_shards(strategy) > 1
    return folder.load_model(name) if shared else model


def prepare(name: str, data: Data, config: Config, strategy) -> Ready:
    """Builds and compiles a model in the strategy's scope, and begins pruning.

    Args:
        name: As in `train`.
        data: Images and labels.
        config: Settings of the run.
        strategy: What `make_strategy` returned.
    """
    # The same weights at the start and the same batches for every model.
    keras.utils.set_random_seed(config.seed)
    with devices.dtype_policy(config.dtype_policy):
        model = build(data, config, decoder=config.decoder == "joint")
    trained = model
    counterfactual = any(config.counterfactual_weights)
    if name == "rem" and (counterfactual or any(config.coupling_weights)):
        images = config.epochs * len(data.train[1])
        ramp = config.coupling_ramp * images / config.batch_size
        trained = rem.add_couplings(
            model, ramp_steps=round(ramp), counterfactual=counterfactual
        )
    batches = _training_batches(
        trained,
        data,
        config,
        shards=devices.num_shards(strategy),
        process=(devices.process(), devices.num_processes()),
    )
    _compile(trained, name, config, batches.num_batches, model)
    if name == "rem":
        pruning.begin(trained, config, data, batches)
    return Ready(model, trained, batches)


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
    mean, std = config.mean, config.std
    if backbone.is_application(config.backbone):
        mean, std = (), ()  # it scales images as it has learnt to
    elif config.measured:
        mean, std = channel_statistics(data.train[0])
    features = None
    if config.backbone is not None:
        features = backbone.load(
            config.backbone, config.data_dir, data.image_shape
        )
    return models.build(
        config.model,
        data.image_shape,
        data.num_classes,
        routing=config.routing,
        backbone=features,
        decoder=decoder,
        mean=mean,
        std=std,
    )


def _in_float32(model: keras.Model, data: Data, config: Config) -> keras.Model:
    """Returns the network with the weights of `model`, which are float32."""
    if config.dtype_policy == "float32":
        return model
    plain = build(data, config, decoder=config.decoder == "joint")
    plain.set_weights(model.get_weights())
    return plain


def decoded_model(
    model: keras.Model, data: Data, folder: RunFolder, strategy
) -> keras.Model | None:
    """Returns the model with its decoder, or None if there is to be none.

    A frozen decoder is trained now, or taken from the folder if that was done
    before.
    """
    config = folder.config
    if config.decoder != "frozen":
        return model if config.decoder == "joint" else None
    path = folder.model_path("decoder")
    if path.exists():
        return folder.load_model("decoder")
    print("\nDecoder on the frozen capsules", flush=True)
    keras.utils.set_random_seed(config.seed)
    with devices.scope(strategy):
        # A copy from the file, because freezing changes the layers.
        encoder = folder.load_model(config.model_names[-1])
        decoded = models.with_decoder(config.model, encoder, frozen=True)
        batches = _training_batches(decoded, data, config)
        loss = tfcaps.losses.ReconstructionLoss(config.reconstruction_weight)
        optimizer = keras.optimizers.Adam(
            objectives.learning_rate(config, batches.num_batches)
        )
        decoded.compile(
            guarded(optimizer), {"lengths": None, "reconstruction": loss}
        )
        decoded.fit(
            batches,
            epochs=config.epochs,
            verbose=progress(),
            shuffle=False,
            callbacks=[_epoch_starter(batches), StopIfNotFinite(batches)],
        )
    folder.save_model("decoder", decoded)
    return decoded


def progress() -> int:
    """Returns Keras' `verbose`: a bar, or in a file a line for each epoch."""
    return 1 if sys.stdout.isatty() else 2


def _training_batches(
    model: keras.Model,
    data: Data,
    config: Config,
    shards: int = 1,
    process: tuple[int, int] = (0, 1),
) -> Batches:
    """Returns batches of the inputs and targets that a model has."""
    if config.batch_size % shards:
        raise UserError(
            f"--batch-size must be a multiple of the {shards} devices; it is "
            f"{config.batch_size}."
        )
    inputs = [tensor.name for tensor in model.inputs]
    if config.pairs and len(inputs) > 1:
        raise UserError(
            "a decoder, or a routing that learns from labels, needs one class "
            f"for each image; those of {data.name} show two."
        )

    def arrange(images, labels):
        known = {"images": images, "labels": labels.astype(np.int32)}
        wanted = {
            "lengths": labels,
            "reconstruction": images,
            "couplings": labels,
            "counterfactual": labels,
        }
        x = {name: known[name] for name in inputs}
        y = labels
        if isinstance(model.output, dict):
            y = {name: wanted[name] for name in model.output}
        return (x if len(inputs) > 1 else images), y

    return Batches(
        *data.train,
        config.batch_size,
        seed=config.seed,
        augment=_augmentation(config),
        shards=shards,
        process=process,
        arrange=arrange,
        num_classes=data.num_classes,
    )


def _stop_on_validation(
    name: str, data: Data, folder: RunFolder, batches: Batches
) -> StopOnValidation:
    config = folder.config
    images, labels = data.validation
    if not len(labels):
        raise UserError(
            "patience and stop_accuracy need validation images; give "
            "--validation a share above 0."
        )
    validation = Batches(
        images, labels, batches.batch_size, arrange=batches.arrange
    )
    takes_best = name == "baseline" and config.patience is not None
    ends = name == "rem" and config.pruning in ("polynomial", "one_shot")
    return StopOnValidation(
        validation,
        folder.path / f"validation-{name}.json",
        patience=config.patience,
        accuracy=config.stop_accuracy,
        not_before=math.ceil(config.pruning_end * config.epochs) if ends else 0,
        compare_from=config.hard_margin_from or 0,
        best=folder.best_path(name) if takes_best else None,
    )


def _augmentation(config: Config) -> Augmentation:
    names = [field.name for field in dataclasses.fields(Augmentation)]
    settings = {name: getattr(config, name) for name in names}
    return Augmentation(
        **{k: None if value == () else value for k, value in settings.items()}
    )


def _compile(
    model: keras.Model,
    name: str,
    config: Config,
    steps_per_epoch: int,
    network: keras.Model,
) -> None:
    optimizer = keras.optimizers.Adam(
        objectives.learning_rate(config, steps_per_epoch)
    )
    if name == "rem" and config.decay:
        optimizer = rem.sensitivity_decay(
            optimizer,
            objectives.decay_rate(config, steps_per_epoch),
            targets=config.decay_targets,
        )
    losses = objectives.losses(model, config, network)
    # The accuracies of Sabour et al. and of Efficient-CapsNet's code.
    metrics = [both_found, share_found] if config.pairs else ["accuracy"]
    if isinstance(losses, dict):
        metrics = {"lengths": metrics}
    model.compile(guarded(optimizer), loss=losses, metrics=metrics)


def _epoch_starter(batches: Batches) -> keras.callbacks.Callback:
    """Tells the batches which epoch begins, so that they draw its order."""
    return keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: batches.start_epoch(epoch)
    )


def _callbacks(
    model: keras.Model, config: Config, batches: Batches
) -> list[keras.callbacks.Callback]:
    callbacks = [_epoch_starter(batches), StopIfNotFinite(batches)]
    if getattr(model, "pruning", None) is not None:
        callbacks.insert(0, rem.UpdatePruningStep())
    if (sharp := sharpness.scheduled_layers(model)) and config.sharpness_start:
        final = max(layer.routing.sharpness for layer in sharp)
        schedule = objectives.sharpness(config, final)
        callbacks.append(rem.SharpnessSchedule(schedule))
    loss = model.loss["lengths"] if isinstance(model.loss, dict) else model.loss
    # On JAX the margin is a constant, and stays where it begins.
    is_constant = keras.backend.backend() == "jax"
    if isinstance(loss, tfcaps.losses.SpreadLoss) and not is_constant:
        callbacks.append(tfcaps.losses.IncreaseMargin(loss))
    if config.hard_margin_from is not None:
        if not isinstance(loss, tfcaps.losses.MarginLoss):
            raise UserError(
                "hard_margin_from needs a network with the margin loss, which "
                f"{config.model} does not have."
            )
        callbacks.append(
            tfcaps.losses.HardenMargin(loss, config.hard_margin_from)
        )
    return callbacks

"""Trains one model of a run, with or without REM."""

import contextlib
import shutil

import keras
import numpy as np

import tfcaps
from tfcaps import rem
from tfcaps.cli import UserError
from training import models
from training.batches import Batches
from training.configs import Config
from training.datasets import Data
from training.folder import RunFolder

# The curves have about this many points, each of this many test images at most.
_CURVE_POINTS = 40
_CURVE_SAMPLES = 1000


def train(name: str, data: Data, folder: RunFolder, strategy) -> keras.Model:
    """Trains a model, or takes it from the folder if that was done before.

    Args:
        name: `"baseline"`, or `"rem"` for pruning and decay.
        data: Images and labels.
        folder: Settings of the run, and where the model, its back-up and its
            metrics go.
        strategy: What `make_strategy` returned.

    Returns:
        The trained model, stripped of pruning.

    Raises:
        UserError: If the loss becomes infinite or not a number.
    """
    config = folder.config
    path = folder.model_path(name)
    if path.exists():
        return keras.saving.load_model(path, compile=False)
    # The same weights at the start and the same batches for every model.
    keras.utils.set_random_seed(config.seed)
    batches = Batches(
        *data.train, config.batch_size, seed=config.seed, shift=config.shift
    )
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = _compiled_model(name, config, data, batches.num_batches)
        if name == "rem":
            schedule = _pruning_schedule(config, batches.num_batches)
            rem.prune_low_magnitude(model, schedule, scope=config.scope)
        model.fit(
            batches,
            epochs=config.epochs,
            callbacks=_callbacks(name, data, folder, batches),
        )
    rem.strip_pruning(model)
    folder.save_model(name, model)
    shutil.rmtree(folder.backup_path(name), ignore_errors=True)
    return model


def make_strategy(name: str):
    """Returns the strategy for all models of a run, or None for one device.

    Two strategies in one process would mix up their collective operations.
    """
    if name == "none":
        return None

    import tensorflow as tf

    devices = tf.config.list_logical_devices("GPU")
    devices = devices or tf.config.list_logical_devices("CPU")
    return tf.distribute.MirroredStrategy([d.name for d in devices])


def _compiled_model(
    name: str, config: Config, data: Data, steps_per_epoch: int
) -> keras.Model:
    model = models.build(config.model, data.image_shape, data.num_classes)
    learning_rate = keras.optimizers.schedules.CosineDecay(
        config.learning_rate, config.epochs * steps_per_epoch
    )
    optimizer = keras.optimizers.Adam(learning_rate)
    if name == "rem" and config.decay:
        # It falls to 0, so that the last steps only fit what is left.
        rate = keras.optimizers.schedules.PolynomialDecay(
            config.decay,
            config.epochs * steps_per_epoch,
            0.0,
            power=config.decay_power,
        )
        optimizer = rem.sensitivity_decay(
            optimizer, rate, targets=config.decay_targets
        )
    model.compile(
        optimizer,
        loss=tfcaps.losses.MarginLoss(),
        metrics=["accuracy"],
    )
    return model


def _pruning_schedule(config: Config, steps_per_epoch: int):
    """Polynomial decay over the configured part of the training."""
    steps = config.epochs * steps_per_epoch
    begin = round(config.pruning_begin * steps)
    end = max(round(config.pruning_end * steps), begin + 1)
    # About a hundred updates, the last of them at `end`.
    frequency = max((end - begin) // 100, 1)
    end = begin + (end - begin) // frequency * frequency
    # Here and nowhere else: importing tfmot turns `tf.keras` into Keras 2.
    import tensorflow_model_optimization as tfmot

    return tfmot.sparsity.keras.PolynomialDecay(
        0.0, config.final_sparsity, begin, end, frequency=frequency
    )


def _callbacks(
    name: str, data: Data, folder: RunFolder, batches: Batches
) -> list[keras.callbacks.Callback]:
    images, labels = data.test
    chosen = np.random.default_rng(0).permutation(len(labels))[:_CURVE_SAMPLES]
    callbacks = [
        keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: batches.start_epoch(epoch)
        ),
        _StopIfNotFinite(),
        _Measure(
            name,
            Batches(images[chosen], labels[chosen], batch_size=256),
            folder,
        ),
        # The last one: it backs up only epochs that are measured and finite.
        keras.callbacks.BackupAndRestore(
            str(folder.backup_path(name)), double_checkpoint=True
        ),
    ]
    if name == "rem":
        callbacks.insert(0, rem.UpdatePruningStep())
    return callbacks


class _StopIfNotFinite(keras.callbacks.Callback):
    """Stops with an error that names the epoch, before it is backed up."""

    def on_epoch_end(self, epoch, logs=None):
        for measure, value in (logs or {}).items():
            if not np.isfinite(value):
                raise UserError(
                    f"{measure} became {value} in epoch {epoch + 1}; the "
                    "training was stopped. Try a lower learning rate in "
                    "training/configs/."
                )


class _Measure(keras.callbacks.Callback):
    """Writes a line of `metrics.jsonl`, at the end and every few epochs."""

    def __init__(self, name, test, folder):
        super().__init__()
        self.name = name
        self.test = test
        self.folder = folder

    def on_train_begin(self, logs=None):
        levels = self.folder.config.levels
        self.evaluator = rem.Evaluator(self.model, levels)

    def on_epoch_end(self, epoch, logs=None):
        epochs = self.folder.config.epochs
        if (epochs - 1 - epoch) % max(epochs // _CURVE_POINTS, 1):
            return
        report = self.evaluator.run(self.test)
        # Keras shows what is added to the logs beside its progress bar.
        logs["entropy_bits"] = report.entropy_bits
        self.folder.append_metrics(
            {
                "model": self.name,
                "epoch": epoch,
                **{k: float(v) for k, v in logs.items()},
                "test_accuracy": report.accuracy,
                "test_accuracy_quantized": report.accuracy_quantized,
                "entropy_bits": report.entropy_bits,
                "ceiling_bits": report.ceiling_bits,
                "median_keys": report.median_keys,
                "nonuniform_share": report.nonuniform_share,
                "t_score": report.t_score,
                "sparsity": report.sparsity,
            }
        )

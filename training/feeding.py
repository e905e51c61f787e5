"""The batches that a model is trained on, as the settings say."""

import dataclasses
from typing import Any

import keras
import numpy as np

from cli import UserError
from training.augmentation import Augmentation
from training.batches import Batches
from training.configs import Config
from training.datasets import Data
from training.image_data import Array, Floats

# Batches that are made while the model is trained on another one.
_READ_AHEAD = 2


def training_batches(
    model: keras.Model,
    data: Data,
    config: Config,
    shards: int = 1,
    process: tuple[int, int] = (0, 1),
    make: Any = Batches,
) -> Batches:
    """Returns batches of the inputs and targets that a model has.

    Args:
        model: What is trained.
        data: Images and labels.
        config: Settings of the run.
        shards: As in `Batches`.
        process: As in `Batches`.
        make: Called for the batches. Defaults to `Batches`, of images that are
            changed at random.

    Raises:
        UserError: If the size of a batch does not fit the devices, or the
            labels do not fit the model.
    """
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

    def arrange(images: Floats, labels: Array) -> tuple[Any, Any]:
        known = {"images": images, "labels": labels.astype(np.int32)}
        wanted = {
            "lengths": labels,
            "reconstruction": images,
            "evidence": labels,
            "presence": labels,
            "couplings": labels,
            "counterfactual": labels,
        }
        x: Any = images
        if len(inputs) > 1:
            x = {name: known[name] for name in inputs}
        y: Any = labels
        if isinstance(model.output, dict):
            y = {name: wanted[name] for name in model.output}
        return x, y

    return make(
        *data.train,
        config.batch_size,
        seed=config.seed,
        augment=augmentation(config),
        shards=shards,
        process=process,
        arrange=arrange,
        balanced=config.balanced,
        num_classes=data.num_classes,
    )


def augmentation(config: Config) -> Augmentation:
    """Returns what may happen to a training image."""
    names = [field.name for field in dataclasses.fields(Augmentation)]
    given = {name: getattr(config, name) for name in names}
    settings: dict[str, Any] = {
        name: None if value == () else value for name, value in given.items()
    }
    return Augmentation(**settings)


def check_shift(data: Data, config: Config) -> None:
    """Raises `UserError` if images can be moved out of sight."""
    rows, columns = data.image_shape[:2]
    if config.shift >= min(rows, columns):
        raise UserError(
            f"--shift {config.shift} can move images of {rows}x{columns} out "
            "of sight: give fewer pixels."
        )


def stream(batches: Batches) -> Any:
    """Returns batches in a form that `fit` reads without long pauses.

    From a `PyDataset` Keras makes a `tf.data.Dataset` that is tuned while it is
    read. The thread that tunes may oversleep the end of an epoch, by as long as
    the epoch took, up to a minute; the next one begins when it wakes up. On a
    single core that happens in every third epoch. Here nothing is tuned.
    """
    if keras.backend.backend() != "tensorflow":
        return batches
    import tensorflow as tf

    count = batches.num_batches
    signature = keras.tree.map_structure(
        lambda array: tf.TensorSpec((None, *array.shape[1:]), array.dtype),
        batches[0],
    )
    options = tf.data.Options()
    options.autotune.enabled = False
    return (
        tf.data.Dataset.from_generator(
            lambda: (batches[index] for index in range(count)),
            output_signature=signature,
        )
        .apply(tf.data.experimental.assert_cardinality(count))
        .prefetch(_READ_AHEAD)
        .with_options(options)
    )


def epoch_starter(batches: Batches) -> keras.callbacks.Callback:
    """Tells the batches which epoch begins, so that they draw its order."""
    return keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: batches.start_epoch(epoch)
    )

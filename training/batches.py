"""Batches of images for training and testing."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from cli import UserError
from tfcaps import graphs
from tfcaps.models.backbone import FrozenModel
from training.augmentation import Augmentation
from training.configs import Config
from training.datasets import Data
from training.images import Array, Floats, Images

# Batches that are made while the model is trained on another one.
_READ_AHEAD = 2
# Most images that are measured at once, most numbers in them, and most of their
# couplings; and calls of a backbone, whose maps take up to 10 MB each.
_MEASURED, _NUMBERS, _COUPLINGS, ON_BACKBONE = 256, 2**23, 2**26, 16


class Batches(keras.utils.PyDataset):
    """Cuts a part of a data set into batches.

    The images of a batch are float32 in [0, 1].

    With a seed, the order and the augmentation depend on nothing but seed,
    epoch and batch, so that a resumed run sees what an uninterrupted one would
    have seen.

    Args:
        images: The images.
        labels: Class indices `[n]`.
        batch_size: Images in a batch; the last one may have fewer.
        seed: Seed of order and augmentation, or `None` to keep the order.
        augment: Random changes of the images.
        shards: Each batch has a multiple of this many images; what is left of
            an epoch is left out.
        process: Which process this is, from 0, and how many there are; each
            takes its part of every batch.
        arrange: Function from images and labels to the inputs and targets of a
            model, where these are others.
        balanced: Repeat images of rare classes, until all are as frequent.
        rows: Which images are taken, and their order; all if `None`.
    """

    def __init__(
        self,
        images: Images,
        labels: Array,
        batch_size: int,
        *,
        seed: int | None = None,
        augment: Augmentation | None = None,
        shards: int = 1,
        process: tuple[int, int] = (0, 1),
        arrange: Callable[[Floats, Array], tuple[Any, Any]] | None = None,
        balanced: bool = False,
        rows: Array | None = None,
    ):
        super().__init__()
        self.images = images
        self.labels = labels
        self.batch_size = batch_size
        self.seed = seed
        self.augment = augment or Augmentation()
        self.shards = shards
        self.process = process
        self._members = np.arange(len(labels)) if rows is None else rows
        if balanced:
            self._members = repeated(labels)
        self.arrange = arrange or (lambda images, labels: (images, labels))
        self.start_epoch(0)

    def start_epoch(self, epoch: int) -> None:
        """Draws the order of an epoch (from 0)."""
        self._epoch = epoch
        self._order = self._members.copy()
        if self.seed is not None:
            np.random.default_rng([self.seed, epoch]).shuffle(self._order)

    @property
    def num_batches(self) -> int:
        return -(-self._num_images // self.batch_size)

    @property
    def _num_images(self) -> int:
        return len(self._members) // self.shards * self.shards

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        start = index * self.batch_size
        end = min(start + self.batch_size, self._num_images)
        rows = self._order[start:end]
        draw = np.random.default_rng([self.seed or 0, self._epoch, index])
        pixels, labels = self.images.take(rows).pixels, self.labels[rows]
        moved = Images(self.augment.move(pixels, draw))
        images = self.augment.colour(moved[:], draw)
        number, count = self.process
        part = slice(number, None, count)
        return self.arrange(images[part], labels[part])


def repeated(labels: Array) -> Array:
    """Returns indices, with those of rare classes repeated, class by class."""
    most = int(np.bincount(labels).max())
    members = [np.nonzero(labels == j)[0] for j in np.unique(labels)]
    return np.concatenate([np.resize(each, most) for each in members])


def training_batches(
    model: keras.Model,
    data: Data,
    config: Config,
    shards: int = 1,
    process: tuple[int, int] = (0, 1),
    augment: Augmentation | None = None,
) -> Batches:
    """Returns batches of the inputs and targets that a model has.

    Images are changed at random as the settings say, or as `augment` does.
    """
    if config.batch_size % shards:
        raise UserError(
            f"--batch-size must be a multiple of the {shards} devices; it is "
            f"{config.batch_size}."
        )
    inputs = [tensor.name for tensor in model.inputs]

    def arrange(images: Floats, labels: Array) -> tuple[Any, Any]:
        x: Any = images
        if len(inputs) > 1:
            x = {"images": images, "labels": labels.astype(np.int32)}
        y: Any = labels
        if isinstance(model.output, dict):
            y = dict.fromkeys(model.output, labels)
            if "reconstruction" in y:
                y["reconstruction"] = images
        return x, y

    return Batches(
        *data.train,
        config.batch_size,
        seed=config.seed,
        augment=augment or augmentation(config),
        shards=shards,
        process=process,
        arrange=arrange,
        balanced=config.balanced,
    )


def augmentation(config: Config) -> Augmentation:
    """Returns what may happen to a training image."""
    fields = dataclasses.fields(Augmentation)
    return Augmentation(**{f.name: getattr(config, f.name) for f in fields})


def measured_at_once(network: keras.Model) -> int:
    """Returns the size of a batch that is measured, less where maps are large.

    Its images are 32 MB at most, and its couplings 256 MB.
    """
    network = graphs.classifier(network)
    children = math.prod(graphs.children_grid(network))
    most = [
        _MEASURED,
        _NUMBERS // math.prod(network.inputs[0].shape[1:]),
        _COUPLINGS // (children * int(network.outputs[0].shape[1])),
    ]
    for layer in network.layers:
        if isinstance(layer, FrozenModel):
            most.append(ON_BACKBONE // layer.calls_a_sample)
    return max(1, min(most))


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

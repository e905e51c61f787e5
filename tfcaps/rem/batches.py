"""Batches of a user's data, and a model's outputs for them."""

from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def batches_of(
    dataset: Any, batch_size: int
) -> tuple[Iterable[tuple[Array, Array]], int | None]:
    """Returns batches, and how many there are if that is known.

    Args:
        dataset: A tuple `(images, labels)` of arrays, or an iterable of such
            batches.
        batch_size: Int. Size of the batches cut from arrays.

    Raises:
        ValueError: If it is neither, there are not as many labels as images, or
            the batch size is below 1.
    """
    if batch_size < 1:
        raise ValueError(
            f"`batch_size` must be at least 1. Received: {batch_size}."
        )
    if isinstance(dataset, tuple) and len(dataset) == 2:
        images, labels = (np.asarray(part) for part in dataset)
        if len(images) != len(labels):
            raise ValueError(
                "There must be one label for each image. Received: "
                f"{len(images)} images and {len(labels)} labels."
            )
        starts = range(0, len(images), batch_size)
        parts = (slice(start, start + batch_size) for start in starts)
        return ((images[part], labels[part]) for part in parts), len(starts)
    if isinstance(dataset, keras.utils.PyDataset):
        count = dataset.num_batches
        return _pairs(dataset[index] for index in range(count)), count
    if isinstance(dataset, Iterable):
        return _pairs(dataset), None
    raise ValueError(
        "`dataset` must be (images, labels) or an iterable of such batches. "
        f"Received: {type(dataset).__name__}."
    )


def _pairs(batches: Iterable[Any]) -> Iterator[tuple[Array, Array]]:
    for batch in batches:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            raise ValueError(
                "Each batch must be a pair (images, labels), without weights. "
                f"Received: {keras.tree.map_structure(np.shape, batch)}."
            )
        if np.ndim(batch[1]) == 0:
            raise ValueError(
                "`dataset` must yield batches, not single images; use "
                "`dataset.batch(64)`. Received: a label of the shape ()."
            )
        yield batch[0], batch[1]


def class_indices(labels: Any, classes: int) -> Array:
    """Returns integer labels `[b]`, made from one-hot ones where need be.

    Raises:
        ValueError: If a label is out of range or no whole number.
    """
    labels = np.asarray(labels)
    if labels.ndim == 2 and labels.shape[1] == classes and classes > 1:
        return np.argmax(labels, axis=-1)
    labels = labels.reshape(-1)
    if labels.size and not (0 <= labels.min() and labels.max() < classes):
        raise ValueError(
            f"Labels must be in [0, {classes - 1}]. Received: "
            f"{labels.min()} to {labels.max()}."
        )
    indices = labels.astype("int64")
    if np.any(indices != labels):
        raise ValueError(
            "Labels must be whole numbers, the indices of classes. Received: "
            f"{labels[indices != labels][0]}."
        )
    return indices


def has_several_classes(labels: Any, classes: int) -> bool:
    """Tells whether some sample of a batch shows more than one class."""
    labels = np.asarray(labels)
    if labels.ndim != 2 or labels.shape[1] != classes or classes == 1:
        return False
    return bool(np.any(np.count_nonzero(labels, axis=1) > 1))


def longest_of(labels: Any, lengths: Any) -> Array:
    """Keeps, of each sample's classes, the one with the longest capsule.

    Args:
        labels: `[b, j]`, above 0 for each class that a sample shows.
        lengths: `[b, j]`, those of the class capsules.
    """
    return np.where(np.asarray(labels) > 0, np.asarray(lengths), -1.0)


def predict_batches(
    model: keras.Model, images: Array | list[Array], batch_size: int
) -> Iterator[Any]:
    """Yields a model's outputs for each batch of images.

    Args:
        model: A functional model.
        images: Its input `[n, h, w, c]`, or a list of its inputs `[n, ...]`.
        batch_size: Int, at least 1. Most images in a batch.

    Raises:
        ValueError: If there are no images, or the batch size is below 1.
    """
    count = len(images[0] if isinstance(images, list) else images)
    if not count or batch_size < 1:
        raise ValueError(
            "There must be at least one image, and one in a batch. Received: "
            f"{count} images, batch_size={batch_size}."
        )
    # On TensorFlow a step would be traced, and large routings compiled for
    # seconds: more than it saves with a few batches. Others must compile.
    eager = keras.backend.backend() == "tensorflow"
    predict = model if eager else model.predict_on_batch
    for start in range(0, count, batch_size):
        some = slice(start, start + batch_size)
        batch = (
            [part[some] for part in images]
            if isinstance(images, list)
            else images[some]
        )
        outputs = predict(batch)
        yield keras.tree.map_structure(keras.ops.convert_to_numpy, outputs)

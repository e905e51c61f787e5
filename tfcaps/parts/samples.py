"""Some of the images that a network is trained on, of what `fit` takes."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from tfcaps.finite import check_images
from tfcaps.labels import check_one_each, indices_of, numbers_of
from tfcaps.ops import Array

# Gives images `[n, h, w, c]` and class indices `[n]`, drawn anew for each
# epoch.
Sample = Callable[[int], tuple[Any, Array]]
# How many images are looked at, at most.
MOST = 1500
# Brighter pixels are those of bytes, however an image was standardised.
_BRIGHTEST = 64


def of_arrays(images: Any, labels: Array, seed: int = 0) -> Sample:
    """Draws from arrays, or what gives images for an array of indices."""

    def sample(epoch: int) -> tuple[Any, Array]:
        # Of a training that is resumed, the same as of one that was not.
        draw = np.random.default_rng([seed, epoch])
        rows = np.sort(draw.permutation(len(labels))[:MOST])
        return _of_classes(images[rows], labels[rows])

    return sample


def of_data(
    x: Any, y: Any, split: float, sizes: tuple[int, ...]
) -> tuple[Any, Sample]:
    """Returns what `fit` is to train on, and what draws from it.

    A generator is watched while it is trained on; the last of arrays, a share
    `split`, are left out. Sizes are those of an image, and how many classes.
    """
    if y is not None:
        images, labels = _arrays(x, y, sizes)
        count = math.floor(len(labels) * (1.0 - split))
        return x, of_arrays(images[:count], labels[:count])
    if isinstance(x, keras.utils.PyDataset):
        return x, _of_batches(lambda epoch: _in_turn(x, epoch), sizes)
    if not hasattr(x, "__next__"):
        return x, _of_batches(lambda _: iter(x), sizes)
    last: list[Any] = []

    def watched() -> Iterator[Any]:
        for batch in x:
            last.append(batch)
            del last[: -math.ceil(MOST / len(_leaf(batch)))]
            yield batch

    return watched(), _of_batches(lambda _: iter(last), sizes)


def _in_turn(batches: Any, epoch: int) -> Iterator[Any]:
    """Yields the batches of a `PyDataset`, in any order if it has an end."""
    order: Any = range(MOST)
    if (count := batches.num_batches) is not None:
        order = np.random.default_rng([0, epoch]).permutation(count).tolist()
    return (batches[index] for index in order)


def _of_batches(read: Callable[[int], Iterator[Any]], sizes: Any) -> Sample:
    def sample(epoch: int) -> tuple[Array, Array]:
        images = [np.zeros((0, *sizes[:-1]), "float32")]
        labels = [np.zeros(0, int)]
        for batch in read(epoch):
            if not isinstance(batch, (tuple, list)) or len(batch) < 2:
                raise ValueError(
                    "Batches must be (images, labels), with weights or not. "
                    f"Received: a batch of the type {type(batch).__name__}."
                )
            some, classes = _arrays(batch[0], batch[1], sizes)
            images.append(some)
            labels.append(classes)
            if sum(map(len, labels)) >= MOST:
                break
        every, classes = np.concatenate(images), np.concatenate(labels)
        return _of_classes(every[:MOST], classes[:MOST])

    return sample


def _leaf(batch: Any) -> Any:
    return keras.tree.flatten(batch)[0]


def _arrays(x: Any, y: Any, sizes: Any) -> tuple[Array, Array]:
    """Returns images, and class indices of indices or of rows of classes."""
    *shape, classes = sizes
    images = _images(keras.ops.convert_to_numpy(_leaf(x)), tuple(shape))
    labels = y.get("evidence", _leaf(y)) if isinstance(y, dict) else _leaf(y)
    # Words are refused by NumPy alone.
    is_array = isinstance(labels, np.ndarray)
    labels = labels if is_array else keras.ops.convert_to_numpy(labels)
    labels = numbers_of(labels)
    if labels.ndim == 2 and labels.shape[1] > 1:
        none = labels.max(axis=1) <= 0
        labels = np.where(none, -1, labels.argmax(axis=1))
    labels = indices_of(labels.reshape(-1))
    check_one_each(len(images), len(labels))
    if labels.max(initial=0) >= classes:
        raise ValueError(
            f"Labels must be class indices below {classes}, the number of "
            f"classes of the network. Received: {labels.max()}."
        )
    return images, labels


def _images(images: Array, shape: tuple[int, ...]) -> Array:
    """Returns images `[n, h, w, c]` that can be drawn again, as floats."""
    grey = shape[:-1] if shape[-1] == 1 else shape
    if images.shape[1:] not in (shape, grey):
        raise ValueError(
            f"Images must have the shape {shape} of the network's input. "
            f"Received: images of the shape {images.shape[1:]}."
        )
    images = images.reshape(-1, *shape).astype("float32")
    check_images(images)
    if images.max(initial=0.0) > _BRIGHTEST:
        raise ValueError(
            "Pixels must be between 0 and 1, as the network draws its images "
            f"again. Received: pixels up to {images.max():g}. Divide them by "
            "255."
        )
    return images


def _of_classes(images: Any, labels: Array) -> tuple[Any, Array]:
    """Leaves out the images of no class, whose label is below 0."""
    return images[labels >= 0], labels[labels >= 0]

"""The length of one class of each image, and of changed images."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from tfcaps.graphs import encoder
from tfcaps.layers import Length
from tfcaps.rem.batches import images_of, predict_batch
from tfcaps.rem.evaluation.evaluate import predict
from tfcaps.rem.finite import check_finite, check_weights
from tfcaps.rem.labels import chosen_classes

Array = NDArray[Any]

BLURRED = "blurred"
# Blurred images keep what is wider than this share of their longer side.
_BLUR = 1 / 8
# Batches from which it pays on TensorFlow to trace a network.
_MANY = 16


def lengths_of(model: keras.Model) -> keras.Model:
    """Returns the model from images to class lengths `[b, j]`."""
    model = encoder(model)
    lengths = model.output
    if len(lengths.shape) != 2:
        lengths = Length(dtype="float32")(lengths)
    return keras.Model(model.input, lengths, name=model.name)


class ClassScores:
    """A class of each image, its length, and that of changed images.

    Args:
        model: As in `tfcaps.rem.capsule_outputs`; a network without capsules
            serves too, its outputs are taken as lengths.
        images: Its input `[n, h, w, c]`, or a data set of them as in
            `tfcaps.rem.evaluate`, whose labels are not looked at.
        classes: Class of each image, `[n]` or one-hot. Defaults to the
            predicted one.
        batch_size: Int. Most images that the model sees at once.

    Attributes:
        network: The model from images to class lengths `[b, j]`.
        images: The images, float32.
        classes: Class `[n]` of each.
        full: Its length `[n]` when nothing is changed.
        batch_size: As given.

    Raises:
        ValueError: If images or classes have another shape, or there is no such
            class.
    """

    def __init__(
        self,
        model: keras.Model,
        images: Array,
        classes: ArrayLike | None = None,
        batch_size: int = 128,
    ):
        self.network = lengths_of(model)
        check_weights(self.network.weights)
        self.images = np.asarray(images_of(images, self.network), np.float32)
        if self.images.ndim != 4 or not len(self.images) or batch_size < 1:
            raise ValueError(
                "`images` must have the shape [n, h, w, c], with at least one "
                "image, and one in a batch. Received: "
                f"{self.images.shape}, batch_size={batch_size}."
            )
        self.batch_size = batch_size
        lengths = np.concatenate(
            [
                self._lengths(self.images[image])[:new]
                for image, new in full_batches(len(self.images), batch_size)
            ]
        )
        self.classes = _classes(classes, lengths)
        self.full = lengths[np.arange(len(lengths)), self.classes]

    def of_parts(
        self,
        count: int,
        kept: Callable[[Array, Array], NDArray[np.bool_]],
        fill: float | str = 0.0,
    ) -> Array:
        """Returns the lengths `[n, count]` of parts of the images.

        Images and parts are packed into full batches, so that the model is
        called as often for few images of many parts as for many of few.

        Args:
            count: Int. How many parts of each image there are.
            kept: From indices `[m]` of images and indices `[m]` of parts to the
                pixels `[m, h, w]` that stay.
            fill: The value of the other pixels: a number, or `"blurred"`.

        Raises:
            ValueError: If `fill` is neither.
        """
        filling = filled(self.images, fill)
        pairs = len(self.images) * count
        parts = []
        for pair, new in full_batches(pairs, self.batch_size):
            image, part = np.divmod(pair, count)
            stays = kept(image, part)[..., None]
            batch = np.where(stays, self.images[image], filling[image])
            lengths = self._lengths(batch, pairs > _MANY * self.batch_size)
            lengths = lengths[np.arange(len(image)), self.classes[image]]
            parts.append(lengths[:new])
        return np.concatenate(parts).reshape(-1, count)

    def _lengths(self, batch: Array, many: bool = False) -> Array:
        if many:
            lengths = np.asarray(predict(self.network, batch))
            check_finite(lengths, self.network)
            return lengths
        return np.asarray(predict_batch(self.network, batch))


def full_batches(total: int, batch_size: int) -> Iterator[tuple[Array, int]]:
    """Yields indices below `total` in batches of one size.

    Each comes with how many of its indices are new: the last one is filled up,
    as other backends than TensorFlow compile a network for each size.
    """
    size = min(batch_size, total)
    for start in range(0, total, size):
        indices = np.arange(start, start + size)
        yield np.minimum(indices, total - 1), min(size, total - start)


def filled(images: Array, fill: float | str) -> Array:
    """Returns images `[n, h, w, c]` without anything to see.

    Args:
        images: Images of this shape.
        fill: A number that all pixels have, or `"blurred"`: a Gaussian filter
            whose deviation is an eighth of the longer side.

    Raises:
        ValueError: If `fill` is neither.
    """
    if isinstance(fill, str):
        if fill != BLURRED:
            raise ValueError(
                f"`fill` must be a number or {BLURRED!r}. Received: "
                f"fill={fill!r}."
            )
        width = _BLUR * max(images.shape[1:3])
        return ndimage.gaussian_filter(images, (0, width, width, 0))
    return np.full_like(images, fill)


def _classes(given: ArrayLike | None, lengths: Array) -> Array:
    if given is None:
        return np.argmax(lengths, axis=-1)
    return chosen_classes(given, *lengths.shape)

"""Random changes of training images."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Array = NDArray[Any]
Floats = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """What may happen to a training image; by default nothing.

    Attributes:
        shift: Largest shift in pixels, to each side; what comes in is 0.
        crop: Rows and columns that are cut out at a random place, or `None`.
        flip: Exchange left and right of half of the images, at random.
        rotation: Largest rotation in degrees, to each side; bilinear, and what
            comes in is 0.
        brightness: Least and largest factor of all pixels, or `None`.
        brightness_delta: Most that is added to all pixels, or subtracted, where
            white is 1.
        contrast: Least and largest factor of how far the pixels are from the
            mean of their image, or `None`.
        pairs: Add a digit of another class to each image, see
            `training/pairs.py`.
    """

    shift: int = 0
    crop: int | None = None
    flip: bool = False
    rotation: float = 0.0
    brightness: tuple[float, float] | None = None
    brightness_delta: float = 0.0
    contrast: tuple[float, float] | None = None
    pairs: bool = False

    def move(self, images: Array, draw: np.random.Generator) -> Array:
        """Moves pixels to other places.

        Args:
            images: Images `[n, h, w, c]`, uint8, or float in [0, 1].
            draw: Where the random numbers come from.
        """
        # With pairs each digit is shifted before they are merged.
        if self.shift and not self.pairs:
            images = shifted(images, self.shift, draw)
        if self.crop is not None:
            images = cropped(images, self.crop, draw)
        if self.flip:
            mirrored = draw.random((len(images), 1, 1, 1)) < 0.5
            images = np.where(mirrored, images[:, :, ::-1], images)
        if self.rotation:
            images = rotated(images, self.rotation, draw)
        return images

    def colour(self, images: Floats, draw: np.random.Generator) -> Floats:
        """Changes the values of pixels, which stay in [0, 1].

        Args:
            images: Images `[n, h, w, c]` in [0, 1].
            draw: Where the random numbers come from.
        """

        def each_image(low: float, high: float) -> Floats:
            numbers = draw.uniform(low, high, (len(images), 1, 1, 1))
            return numbers.astype(np.float32)

        if self.brightness is not None:
            images = _clipped(images * each_image(*self.brightness))
        if self.brightness_delta:
            limit = self.brightness_delta
            images = _clipped(images + each_image(-limit, limit))
        if self.contrast is not None:
            mean = images.reshape(len(images), -1).mean(axis=1)
            mean = mean[:, np.newaxis, np.newaxis, np.newaxis]
            factor = each_image(*self.contrast)
            images = _clipped(images * factor + mean * (1.0 - factor))
        return images


def _clipped(images: Floats) -> Floats:
    return np.clip(images, 0.0, 1.0, out=images)


def shifted(images: Array, limit: int, draw: np.random.Generator) -> Array:
    """Moves each image by up to `limit` pixels; what comes in is 0."""
    sides = (limit, limit)
    padded = np.pad(images, ((0, 0), sides, sides, (0, 0)))
    return _cut(padded, images.shape[1:3], draw)


def cropped(images: Array, size: int, draw: np.random.Generator) -> Array:
    """Cuts `size` rows and columns out of each image, at a random place."""
    return _cut(images, (size, size), draw)


def rotated(images: Array, limit: float, draw: np.random.Generator) -> Array:
    """Turns each image by up to `limit` degrees; what comes in is 0."""
    angles = draw.uniform(-limit, limit, len(images))
    turned = np.empty_like(images)
    for new, image, angle in zip(turned, images, angles, strict=True):
        if image.dtype == np.uint8 and image.shape[-1] == 3:
            new[:] = _turned(image, angle)
        else:
            for channel in range(image.shape[-1]):
                new[..., channel] = _turned(image[..., channel], angle)
    return turned


def _turned(image: Array, angle: float) -> Array:
    picture = Image.fromarray(np.ascontiguousarray(image))
    return np.asarray(picture.rotate(angle, Image.Resampling.BILINEAR))


def _cut(
    images: Array, shape: tuple[int, int], draw: np.random.Generator
) -> Array:
    """Cuts a window of a shape out of each image, at a random place."""
    rows, columns = shape
    tops, lefts = draw.integers(
        0,
        [[images.shape[1] - rows + 1], [images.shape[2] - columns + 1]],
        size=(2, len(images)),
    )
    cut = np.empty((len(images), rows, columns, images.shape[3]), images.dtype)
    for window, image, top, left in zip(cut, images, tops, lefts, strict=True):
        window[:] = image[top : top + rows, left : left + columns]
    return cut

"""Random changes of training images."""

import dataclasses
import math

import numpy as np
from PIL import Image

from training.images import BILINEAR, Array, Floats, Pixels, by_pillow


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """What may happen to a training image; by default nothing.

    The attributes are the settings of these names, see `training/configs.py`.
    """

    shift: int = 0
    crop: int | None = None
    flip: bool = False
    rotation: float = 0.0
    zoom: tuple[float, ...] = ()
    fill: str = "black"
    brightness: tuple[float, ...] = ()
    brightness_delta: float = 0.0
    contrast: tuple[float, ...] = ()

    def move(self, images: Pixels, draw: np.random.Generator) -> Pixels:
        """Moves pixels to other places."""
        at_once = self.fill == "edge" or self.zoom
        if at_once and self.crop is None:
            return self._moved(images, draw, self.shift, self.flip)
        if self.shift:
            images = shifted(images, self.shift, draw)
        if self.crop is not None:
            images = cropped(images, (self.crop, self.crop), draw)
        if self.flip:
            mirrored = draw.random((len(images), 1, 1, 1)) < 0.5
            images = np.where(mirrored, images[:, :, ::-1], images)
        if self.zoom or self.rotation:
            images = self._moved(images, draw, shift=0, flip=False)
        return images

    def _moved(
        self, images: Pixels, draw: np.random.Generator, shift: int, flip: bool
    ) -> Pixels:
        """Does all at once, so that pixels are interpolated once."""
        count = len(images)
        low, high = self.zoom or (1.0, 1.0)
        zoom = draw.uniform(low, high, count)
        angles = np.deg2rad(draw.uniform(-1.0, 1.0, count) * self.rotation)
        offsets = draw.uniform(-1.0, 1.0, (count, 2)) * shift
        mirrored = flip & (draw.random(count) < 0.5)
        cosine, sine = np.cos(angles) / zoom, np.sin(angles) / zoom
        sign = np.where(mirrored, -1.0, 1.0)
        rows = np.stack([cosine, sine * sign], axis=-1)
        columns = np.stack([-sine, cosine * sign], axis=-1)
        maps = np.stack([rows, columns], axis=1)
        return warped(images, maps, offsets, self.fill)

    def colour(self, images: Floats, draw: np.random.Generator) -> Floats:
        """Changes the values of pixels, which stay in [0, 1]."""

        def each_image(low: float, high: float) -> Floats:
            numbers = draw.uniform(low, high, (len(images), 1, 1, 1))
            return numbers.astype(np.float32)

        if self.brightness:
            images = _clipped(images * each_image(*self.brightness))
        if self.brightness_delta:
            limit = self.brightness_delta
            images = _clipped(images + each_image(-limit, limit))
        if self.contrast:
            mean = images.reshape(len(images), -1).mean(axis=1)
            mean = mean[:, np.newaxis, np.newaxis, np.newaxis]
            factor = each_image(*self.contrast)
            images = _clipped(images * factor + mean * (1.0 - factor))
        return images


def _clipped(images: Floats) -> Floats:
    return np.clip(images, 0.0, 1.0, out=images)


def shifted(images: Pixels, limit: int, draw: np.random.Generator) -> Pixels:
    """Moves each image by up to `limit` pixels; what comes in is 0."""
    sides = (limit, limit)
    padded = np.pad(images, ((0, 0), sides, sides, (0, 0)))
    return cropped(padded, images.shape[1:3], draw)


def cropped(
    images: Pixels, sides: tuple[int, ...], draw: np.random.Generator
) -> Pixels:
    """Cuts rows and columns out of each image, at a random place."""
    rows, columns = sides
    room = [[images.shape[1] - rows + 1], [images.shape[2] - columns + 1]]
    places = draw.integers(0, room, size=(2, len(images))).T
    windows = [
        image[top : top + rows, left : left + columns]
        for image, (top, left) in zip(images, places, strict=True)
    ]
    return np.array(windows).reshape(-1, *sides, images.shape[3])


def warped(
    images: Pixels, maps: Array, offsets: Array, fill: str = "edge"
) -> Pixels:
    """Looks up the pixels of new images in old ones; bilinear.

    A new place, row and column from the middle, times the map of its image,
    `[n, 2, 2]`, plus the offset `[n, 2]` in pixels is the old place. Places
    outside of an image show its nearest pixel, `"edge"`, or `"black"`.
    """
    sides = np.array(images.shape[1:3])
    middle = (sides - 1) / 2
    corners = middle * [[-1, -1], [-1, 1], [1, -1], [1, 1]]
    old = np.einsum("nij,kj->nki", maps, corners) + offsets[:, np.newaxis]
    # Pixels that are looked up beyond the edges.
    rim = 1 + math.ceil(max(0.0, np.max(np.abs(old) - middle, initial=0.0)))
    rims = ((rim, rim), (rim, rim), (0, 0))
    starts = middle + rim + offsets - np.einsum("nij,j->ni", maps, middle)
    new = np.empty_like(images)
    for k, image in enumerate(images):
        # Pillow has columns first, and the middle of a pixel at a half.
        linear = maps[k][::-1, ::-1]
        constant = starts[k][::-1] + 0.5 - 0.5 * linear.sum(axis=1)
        numbers = np.column_stack([linear, constant]).ravel().tolist()
        new[k] = by_pillow(
            np.pad(image, rims, mode="edge" if fill == "edge" else "constant"),
            "transform",
            (sides[1], sides[0]),
            Image.Transform.AFFINE,
            numbers,
            BILINEAR,
        )
    return new

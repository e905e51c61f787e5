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
        """Moves pixels to other places, all at once: interpolated once."""
        if not (
            self.shift or self.crop or self.flip or self.rotation or self.zoom
        ):
            return images
        count, *old = images.shape[:3]
        new = [self.crop or side for side in old]
        room = np.subtract(old, new)
        # Whole pixels, so that what is only shifted is not blurred.
        offsets = draw.integers(0, room + 1, (count, 2)) - room / 2
        offsets += draw.integers(-self.shift, self.shift + 1, (count, 2))
        low, high = self.zoom or (1.0, 1.0)
        zoom = draw.uniform(low, high, count)
        angles = np.deg2rad(draw.uniform(-1.0, 1.0, count) * self.rotation)
        cosine, sine = np.cos(angles) / zoom, np.sin(angles) / zoom
        mirrored = draw.random(count) < 0.5 * self.flip
        sign = np.where(mirrored, -1.0, 1.0)
        maps = np.array([[cosine, sine * sign], [-sine, cosine * sign]])
        maps = maps.transpose(2, 0, 1)
        return warped(images, maps, offsets, (new[0], new[1]), self.fill)

    def colour(self, images: Floats, draw: np.random.Generator) -> Floats:
        """Changes the values of pixels, which stay in [0, 1]."""

        def each_image(low: float, high: float) -> Floats:
            numbers = draw.uniform(low, high, (len(images), 1, 1, 1))
            return numbers.astype(np.float32)

        if self.brightness:
            images = np.clip(images * each_image(*self.brightness), 0.0, 1.0)
        if limit := self.brightness_delta:
            images = np.clip(images + each_image(-limit, limit), 0.0, 1.0)
        if self.contrast:
            mean = images.mean(axis=(1, 2, 3), keepdims=True)
            factor = each_image(*self.contrast)
            images = np.clip(mean + factor * (images - mean), 0.0, 1.0)
        return images


def warped(
    images: Pixels,
    maps: Array,
    offsets: Array,
    sides: tuple[int, int],
    fill: str = "edge",
) -> Pixels:
    """Looks up the pixels of new images in old ones; bilinear.

    A new place, row and column from the middle, times the map of its image,
    `[n, 2, 2]`, plus the offset `[n, 2]` in pixels is the old place. Places
    outside of an image show its nearest pixel, `"edge"`, or `"black"`.
    """
    middle = (np.array(images.shape[1:3]) - 1) / 2
    new_middle = (np.array(sides) - 1) / 2
    corners = new_middle * [[-1, -1], [-1, 1], [1, -1], [1, 1]]
    old = np.einsum("nij,kj->nki", maps, corners) + offsets[:, np.newaxis]
    # Pixels that are looked up beyond the edges.
    rim = 1 + math.ceil(max(0.0, np.max(np.abs(old) - middle, initial=0.0)))
    rims = ((0, 0), (rim, rim), (rim, rim), (0, 0))
    padded = np.pad(images, rims, mode="edge" if fill == "edge" else "constant")
    starts = middle + rim + offsets - maps @ new_middle
    new = np.empty((len(images), *sides, images.shape[3]), images.dtype)
    for k, image in enumerate(padded):
        # Pillow has columns first, and the middle of a pixel at a half.
        linear = maps[k][::-1, ::-1]
        constant = starts[k][::-1] + 0.5 - 0.5 * linear.sum(axis=1)
        numbers = np.column_stack([linear, constant]).ravel().tolist()
        how = sides[::-1], Image.Transform.AFFINE, numbers, BILINEAR
        new[k] = by_pillow(image, "transform", *how)
    return new

"""Images in memory.

Pixels stay as they were read, because photos would take four times the memory
as float32. They become float32 in `Images`, and nowhere else.
"""

import dataclasses
import mmap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Array = NDArray[Any]
# Images `[n, h, w, c]` as they were read: uint8, or float in [0, 1].
Pixels = NDArray[np.uint8 | np.floating[Any]]
# Images `[n, h, w, c]` in [0, 1], as a network takes them.
Floats = NDArray[np.float32]
# Which images are taken: indices, a mask or a slice.
Rows = NDArray[np.integer[Any] | np.bool_] | slice

BILINEAR = Image.Resampling.BILINEAR


@dataclasses.dataclass(frozen=True, eq=False)
class Images:
    """Images that become float32 in [0, 1] when they are taken.

    `images[rows]` is an array that a network takes; `images[:]` takes all.
    `pixels` are as they were read, uint8, or float in [0, 1], `[n, h, w, c]`;
    in memory or on disk.
    """

    pixels: Pixels

    def __post_init__(self) -> None:
        if self.pixels.dtype != np.uint8 and self.pixels.dtype.kind != "f":
            raise TypeError(
                "Pixels must be uint8, or floats in [0, 1]. Received: "
                f"{self.pixels.dtype}."
            )

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, rows: Rows) -> Floats:
        pixels = self.pixels[rows]
        floats = pixels.astype(np.float32)
        forget(self.pixels)
        if pixels.dtype == np.uint8:
            floats /= np.float32(255)
        return floats

    @property
    def shape(self) -> tuple[int, ...]:
        return self.pixels.shape

    def take(self, rows: Rows) -> "Images":
        """Returns some of the images, as they were read."""
        pixels = self.pixels[rows]
        forget(self.pixels)
        return Images(pixels)


class Split(NamedTuple):
    """The images of a part of a data set, and their classes `[n]`, integers."""

    images: Images
    labels: Array

    def take(self, rows: Rows) -> "Split":
        """Returns some of the images, as they were read, and their labels."""
        return Split(self.images.take(rows), self.labels[rows])

    def with_pixels(self, pixels: Pixels) -> "Split":
        """Returns other images with the same labels."""
        return Split(Images(pixels), self.labels)


def forget(pixels: Pixels) -> None:
    """Lets go of the memory of pixels on disk; read again, they are there."""
    if isinstance(pixels, np.memmap) and hasattr(mmap, "MADV_DONTNEED"):
        pixels._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


def resize(images: Pixels, size: int | tuple[int, int]) -> Pixels:
    """Returns images `[n, h, w, c]` in another size, bilinear.

    The whole image is kept; where it becomes smaller, all the pixels that fall
    together are averaged.
    """
    sides = (size, size) if isinstance(size, int) else size
    if images.shape[1:3] == sides:
        return images
    kind = np.uint8 if images.dtype == np.uint8 else np.float32
    resized = np.empty((len(images), *sides, images.shape[3]), kind)
    for image, new in zip(images, resized, strict=True):
        new[...] = by_pillow(
            image.astype(kind, copy=False), "resize", sides[::-1], BILINEAR
        )
    return resized


def by_pillow(image: Pixels, method: str, *how: Any) -> Pixels:
    """Returns what a method of Pillow's makes of an image `[h, w, c]`."""

    def changed(array: Pixels) -> Pixels:
        picture = Image.fromarray(np.ascontiguousarray(array))
        return np.asarray(getattr(picture, method)(*how))

    if image.dtype == np.uint8 and image.shape[-1] == 3:
        return changed(image)
    channels = [changed(image[..., k]) for k in range(image.shape[-1])]
    return np.stack(channels, axis=-1)


def centre_crop(images: Array, size: int) -> Array:
    """Returns the middle of images `[n, h, w, c]` as `[n, size, size, c]`."""
    top, left = ((side - size) // 2 for side in images.shape[1:3])
    return images[:, top : top + size, left : left + size]


def channel_statistics(
    images: Pixels,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns mean and standard deviation of each channel, as in [0, 1]."""
    whole = images[..., 0].size * (255.0 if images.dtype == np.uint8 else 1.0)
    # In float64, which a whole data set is never cast to at once.
    means = images.sum(axis=(0, 1, 2), dtype=np.float64) / whole
    squares = np.einsum("nhwc,nhwc->c", images, images, dtype=np.float64)
    squares *= images[..., 0].size / whole**2
    stds = np.sqrt(np.maximum(squares - means**2, 0.0))
    return tuple(means.tolist()), tuple(stds.tolist())


def size_text(image: Array) -> str:
    """Returns the shape of an image in words."""
    return "x".join(map(str, image.shape))

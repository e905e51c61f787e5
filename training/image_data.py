"""Images and labels in memory.

Pixels stay as they were read, because photos would take four times the memory
as float32. They become float32 here, in `Images`, and nowhere else.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Images `[n, h, w, c]` as they were read: uint8, or float in [0, 1].
Pixels = NDArray[np.uint8 | np.floating[Any]]
# Images `[n, h, w, c]` in [0, 1], as a network takes them.
Floats = NDArray[np.float32]
# Which images are taken: indices, a mask or a slice.
Rows = NDArray[np.integer[Any] | np.bool_] | slice


@dataclasses.dataclass(frozen=True, eq=False)
class Images:
    """Images that become float32 in [0, 1] when they are taken.

    `images[rows]` is an array that a network takes. `rows` are indices, a mask
    or a slice; `images[:]` takes all. `pixels` are as they were read, uint8, or
    float in [0, 1], `[n, h, w, c]`; in memory or on disk.
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
        taken = self.pixels[rows]
        floats = taken.astype(np.float32)
        if taken.dtype == np.uint8:
            floats /= np.float32(255)
        return floats

    @property
    def shape(self) -> tuple[int, ...]:
        return self.pixels.shape

    def take(self, rows: Rows) -> "Images":
        """Returns some of the images, as they were read."""
        return Images(self.pixels[rows])


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

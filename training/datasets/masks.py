"""Masks of test images: the pixels of objects and their parts."""

import dataclasses
from collections.abc import Callable

import numpy as np

from training import images as pixels
from training.image_data import Array, Pixels, Rows

_INK = 0.3  # of white; the pale rim of a stroke is darker


@dataclasses.dataclass(frozen=True)
class Masks:
    """The pixels of objects, of their parts, and of what belongs to nothing.

    All masks are bool, and True where the thing is. A mask of a part that an
    image does not have is False everywhere.

    Attributes:
        object: What the label names, `[n, h, w]`; of an image with several
            objects, all of them.
        parts: The parts that the object is made of, `[n, parts, h, w]`. Of an
            image with several objects, each object.
        loose: Parts or pieces that belong to no object, `[n, pieces, h, w]`;
            `pieces` may be 0.
        of_classes: The class that each of `parts` belongs to, `[n, parts]`, or
            `None` if all belong to the image's label.
    """

    object: Array
    parts: Array
    loose: Array
    of_classes: Array | None = None

    def __getitem__(self, rows: Rows) -> "Masks":
        """Returns the masks of some images."""
        classes = self.of_classes
        return Masks(
            self.object[rows],
            self.parts[rows],
            self.loose[rows],
            None if classes is None else classes[rows],
        )

    def resized(self, size: int) -> "Masks":
        """Returns masks of so many rows and columns, as images are resized.

        A pixel belongs to a thing if at least half of it does.
        """
        return self._each(
            lambda masks: pixels.resize(masks.astype(np.float32), size) >= 0.5
        )

    def centre_cropped(self, size: int) -> "Masks":
        """Returns the middle, as it is cut out of images."""
        return self._each(lambda masks: pixels.centre_crop(masks, size))

    def _each(self, change: Callable[[Array], Array]) -> "Masks":
        """Changes masks as images `[n, h, w, 1]`."""

        def changed(masks: Array) -> Array:
            *count, rows, columns = masks.shape
            flat = masks.reshape(int(np.prod(count)), rows, columns, 1)
            new = change(flat)
            return new.reshape(*count, *new.shape[1:3])

        return dataclasses.replace(
            self,
            object=changed(self.object),
            parts=changed(self.parts),
            loose=changed(self.loose),
        )


def inked(images: Pixels) -> Array:
    """Returns where images `[..., h, w, c]` are drawn on, `[..., h, w]`."""
    white = 255.0 if images.dtype == np.uint8 else 1.0
    return np.any(images >= _INK * white, axis=-1)

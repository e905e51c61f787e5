"""A loaded data set: arrays that fit together."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cli import UserError
from training.images import (
    Array,
    Images,
    Split,
    centre_crop,
    resize,
    size_text,
)

if TYPE_CHECKING:  # it takes long to load
    from tfcaps.rem import PartMasks

# Images and labels of a file, before `checked`.
Arrays = tuple[Array, Array]


@dataclasses.dataclass(frozen=True)
class Data:
    """A data set in memory."""

    name: str
    train: Split
    validation: Split  # held out of the training images; it may be empty
    test: Split
    class_names: tuple[str, ...]
    # Further test sets by name, such as `familiar` viewpoints.
    others: Mapping[str, Split] = dataclasses.field(default_factory=dict)
    # Parts of the test images, where they are known.
    masks: "PartMasks | None" = None
    left_out: tuple[str, ...] = ()  # a sentence for each file

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """What a network sees: the shape of a test image."""
        rows, columns, channels = self.test.images.shape[1:]
        return rows, columns, channels

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def with_validation(self, share: float) -> "Data":
        """Moves a share of each class from training to validation."""
        if not share:
            return self
        kept, held = held_out(self.train.labels, share)
        return dataclasses.replace(
            self, train=self.train.take(kept), validation=self.train.take(held)
        )

    def reduced(self, samples: int) -> "Data":
        """Returns at most so many images of each part, drawn at random."""
        draw = np.random.default_rng(0)
        splits = self.train, self.test, self.validation, *self.others.values()
        rows = {
            id(split): np.sort(draw.permutation(len(split.labels))[:samples])
            for split in splits
        }
        few = self._each(lambda split: split.take(rows[id(split)]))
        masks = self.masks and self.masks[rows[id(self.test)]]
        return dataclasses.replace(few, masks=masks)

    def resized(self, size: int) -> "Data":
        """Returns the images with so many rows and columns, bilinear.

        Masks are those of the images' own size, and are left out.
        """
        return self._each(
            lambda split: split.with_pixels(resize(split.images.pixels, size))
        )

    def centre_cropped(self, size: int) -> "Data":
        """Cuts the middle out of all but the training images.

        The training images are cut at random places, by `Batches`.
        """
        cut = self._each(
            lambda split: split.with_pixels(
                centre_crop(split.images.pixels, size)
            )
        )
        return dataclasses.replace(cut, train=self.train)

    def _each(self, change: Callable[[Split], Split]) -> "Data":
        return dataclasses.replace(
            self,
            train=change(self.train),
            test=change(self.test),
            validation=change(self.validation),
            others={k: change(split) for k, split in self.others.items()},
            masks=None,
        )


def held_out(labels: Array, share: float) -> tuple[Array, Array]:
    """Returns which images are kept, and which are split off.

    It is the same share of each class, the same images at every call; a class
    gives at least one image and keeps at least one.
    """
    order = np.random.default_rng(0).permutation(len(labels))
    by_class = [order[labels[order] == j] for j in np.unique(labels)]
    cuts = [
        min(max(1, round(len(members) * share)), len(members) - 1)
        for members in by_class
    ]
    held = np.sort(
        np.concatenate([m[:cut] for m, cut in zip(by_class, cuts, strict=True)])
    )
    return np.setdiff1d(order, held), held


def checked(
    name: str,
    train: Arrays,
    test: Arrays,
    class_names: Sequence[str] | None,
    others: Mapping[str, Arrays] | None = None,
) -> Data:
    """Returns `Data` if images and labels can be used together.

    Grey images get a channel, those that are not uint8 become float32, and a
    column of labels becomes a vector.
    """
    splits: dict[str, Split] = {}
    for part in (("training", train), ("test", test), *(others or {}).items()):
        title, (images, labels) = part
        images = images[..., np.newaxis] if images.ndim == 3 else images
        labels = labels[:, 0] if labels.shape[1:] == (1,) else labels
        _check_images(name, title, images)
        if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu":
            raise UserError(
                f"{name}: there must be one label for each {title} image, the "
                f"number of its class; there are {len(images)} images and "
                f"labels of {labels.dtype}, of the shape {labels.shape}."
            )
        if images.dtype != np.uint8:
            images = images.astype(np.float32, copy=False)
        splits[title] = Split(Images(images), labels)
        first = splits["training"].images.pixels[0]
        if images.shape[1:] != first.shape:
            raise UserError(
                f"{name}: training images are {size_text(first)}, {title} "
                f"images {size_text(images[0])}; they must have one shape."
            )
    present = np.unique(splits["training"].labels)
    names = class_names or [str(j) for j in range(len(present))]
    for title, split in splits.items():
        low, high = split.labels.min(), split.labels.max()
        if low < 0 or high >= len(names):
            raise UserError(
                f"{name}: the {title} labels must be in 0 to {len(names) - 1}, "
                "the classes of the training images, numbered without gaps; "
                f"they go from {low} to {high}."
            )
    if len(names) < 2:
        raise UserError(f"{name}: there must be at least two classes.")
    known, tested = splits.pop("training"), splits.pop("test")
    nothing = known.take(slice(0))
    return Data(name, known, nothing, tested, tuple(names), splits)


def _check_images(name: str, part: str, images: Array) -> None:
    if images.ndim == 4 and not len(images):
        raise UserError(f"{name}: there are no {part} images.")
    if images.ndim != 4 or 0 in images.shape or images.shape[3] > 3:
        raise UserError(
            f"{name}: the {part} images must have the shape [images, rows, "
            "columns] or [images, rows, columns, 1 to 3 channels]; they have "
            f"{images.shape}."
        )
    low, high = images.min(), images.max()
    # Not of NaN.
    are_floats = images.dtype.kind == "f" and low >= 0.0 and high <= 1.0
    if not are_floats and images.dtype != np.uint8:
        raise UserError(
            f"{name}: the {part} images must be uint8, or floats in 0 to 1; "
            f"they are {images.dtype}, from {low} to {high}."
        )

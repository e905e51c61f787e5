"""A loaded data set: arrays that fit together."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from cli import UserError
from training import images as pixels
from training.datasets.masks import Masks
from training.image_data import Array, Images, Pixels, Split

# Images and labels of a file, before `checked`.
Arrays = tuple[Array, Array]
_Masked = tuple[Split, Masks | None]


@dataclasses.dataclass(frozen=True)
class Data:
    """A data set in memory.

    Attributes:
        name: What to call it.
        train: Images and labels.
        validation: The same, held out of the training images; it may be empty.
        test: The same for testing.
        class_names: One for each class.
        others: Further test sets by name, such as `familiar` viewpoints.
        masks: What the pixels of the test images belong to, or `None` if that
            is not known.
        validation_masks: The same of the validation images.
        left_out: A sentence for each file that could not be read.
    """

    name: str
    train: Split
    validation: Split
    test: Split
    class_names: tuple[str, ...]
    others: Mapping[str, Split] = dataclasses.field(default_factory=dict)
    masks: Masks | None = None
    validation_masks: Masks | None = None
    left_out: tuple[str, ...] = ()

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

        def some(split: Split, masks: Masks | None) -> _Masked:
            drawn = draw.permutation(len(split.labels))[:samples]
            rows = np.sort(drawn)
            return split.take(rows), masks and masks[rows]

        return self._each(some)

    def resized(self, size: int) -> "Data":
        """Returns the images with so many rows and columns, bilinear."""
        return self._each(
            lambda split, masks: (
                _changed(split, lambda images: pixels.resize(images, size)),
                masks and masks.resized(size),
            )
        )

    def centre_cropped(self, size: int) -> "Data":
        """Cuts the middle out of all but the training images.

        The training images are cut at random places, by `Batches`.
        """
        cut = self._each(
            lambda split, masks: (
                _changed(
                    split, lambda images: pixels.centre_crop(images, size)
                ),
                masks and masks.centre_cropped(size),
            )
        )
        return dataclasses.replace(cut, train=self.train)

    def _each(self, change: Callable[[Split, Masks | None], _Masked]) -> "Data":
        train, _ = change(self.train, None)
        test, masks = change(self.test, self.masks)
        validation, validation_masks = change(
            self.validation, self.validation_masks
        )
        return dataclasses.replace(
            self,
            train=train,
            test=test,
            validation=validation,
            others={
                name: change(split, None)[0]
                for name, split in self.others.items()
            },
            masks=masks,
            validation_masks=validation_masks,
        )


def _changed(split: Split, change: Callable[[Pixels], Pixels]) -> Split:
    """Returns a split whose pixels are changed."""
    return Split(Images(change(split.images.pixels)), split.labels)


def hold_out(
    images: Array, labels: Array, share: float
) -> tuple[Arrays, Arrays]:
    """Splits off the same share of each class, the same at every call.

    A class gives at least one image and keeps at least one.
    """
    kept, held = held_out(labels, share)
    return (images[kept], labels[kept]), (images[held], labels[held])


def held_out(labels: Array, share: float) -> tuple[Array, Array]:
    """Returns which images `hold_out` keeps, and which it splits off."""
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
    class_names: list[str] | None,
    others: Mapping[str, Arrays] | None = None,
) -> Data:
    """Returns `Data` if images and labels can be used together.

    Images that are not uint8 become float32.

    Raises:
        UserError: If they cannot.
    """
    parts = {"training": train, "test": test, **(others or {})}
    parts = {title: _in_shape(part) for title, part in parts.items()}
    train = parts["training"]
    for title, (images, labels) in parts.items():
        _check_images(name, title, images)
        if labels.shape != (len(images),):
            raise UserError(
                f"{name}: there must be one label for each {title} image; "
                f"there are {len(images)} images and labels of the shape "
                f"{labels.shape}."
            )
        if labels.dtype.kind not in "iu":
            raise UserError(
                f"{name}: the {title} labels must be integers from 0; they are "
                f"{labels.dtype}."
            )
        if images.shape[1:] != train[0].shape[1:]:
            raise UserError(
                f"{name}: training images are {pixels.size(train[0][0])}, "
                f"{title} images {pixels.size(images[0])}; they must have one "
                "shape."
            )
    classes = (
        len(class_names) if class_names else _count_classes(name, train[1])
    )
    for title, (_, labels) in parts.items():
        if labels.min() < 0 or labels.max() >= classes:
            raise UserError(
                f"{name}: the {title} labels must be in 0 to {classes - 1}, "
                "the classes of the training images; they go from "
                f"{labels.min()} to {labels.max()}."
            )
    if classes < 2:
        raise UserError(f"{name}: there must be at least two classes.")
    names = class_names or [str(j) for j in range(classes)]
    splits = {title: _split(part) for title, part in parts.items()}
    known, tested = splits.pop("training"), splits.pop("test")
    nothing = known.take(slice(0))
    return Data(name, known, nothing, tested, tuple(names), splits)


def _split(part: Arrays) -> Split:
    images, labels = part
    if images.dtype != np.uint8:
        images = images.astype(np.float32, copy=False)
    return Split(Images(images), labels)


def _in_shape(part: Arrays) -> Arrays:
    """Adds a channel to grey images; makes a column of labels a vector."""
    images, labels = part
    if images.ndim == 3:
        images = images[..., np.newaxis]
    return images, labels[:, 0] if labels.shape[1:] == (1,) else labels


def _count_classes(name: str, labels: Array) -> int:
    """Returns how many classes labels from 0 without gaps show."""
    present = np.unique(labels)
    expected = np.arange(len(present))
    if not np.array_equal(present, expected):
        wrong = present[present != expected][0]
        raise UserError(
            f"{name}: the training labels must be 0, 1, 2 and so on without "
            f"gaps; {len(present)} classes are there, but one label is {wrong}."
        )
    return len(present)


def _check_images(name: str, part: str, images: Array) -> None:
    if images.ndim != 4 or 0 in images.shape or images.shape[3] > 3:
        raise UserError(
            f"{name}: the {part} images must have the shape [images, rows, "
            "columns] or [images, rows, columns, 1 to 3 channels]; they have "
            f"{images.shape}."
        )
    if images.dtype == np.uint8:
        return
    text = f"{name}: the {part} images must be uint8, or floats in 0 to 1; they"
    if images.dtype.kind != "f":
        raise UserError(f"{text} are {images.dtype}.")
    low, high = images.min(), images.max()
    if not (low >= 0.0 and high <= 1.0):  # NaN, too
        raise UserError(f"{text} go from {low} to {high}.")

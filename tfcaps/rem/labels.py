"""The class of each image, read from whatever says it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfcaps.ops import SOFT_SUM_ERROR

Array = NDArray[Any]

# The class of an image that shows none.
NO_CLASS = -1
# By how much a number of a row may miss 0 or 1.
_ERROR = 1e-3
# Above it, a class's capsule says that the class is there.
PRESENT = 0.5


def class_of_each(
    labels: Any,
    classes: int,
    lengths: Array | None = None,
) -> NDArray[np.int64]:
    """Returns the class of each image, `[b]`, -1 for an image of no class.

    Labels are one of these:

    - class indices `[b]` or `[b, 1]`, -1 for no class;
    - rows `[b, j]` of numbers that sum to 1 but for rounding, as one-hot or
      soft labels (smoothed, mixed, a teacher's): the largest number is that of
      the class, the first of equal ones;
    - rows `[b, j]` of zeros and ones: of several classes the one with the
      longest capsule, of none no class;
    - with one class, `[b]` or `[b, 1]`: 1 where it is there, 0 where not.

    Args:
        labels: The labels of `b` images, numbers or bools.
        classes: Int. How many classes there are, `j`.
        lengths: Lengths `[b, j]` of the class capsules, for images of several
            classes. Defaults to `None`, for which these are an error.

    Raises:
        ValueError: If labels are none of these.
    """
    numbers = _numbers(labels)
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.ndim == 1:
        return (
            _presence(numbers) if classes == 1 else _indices(numbers, classes)
        )
    if numbers.ndim == 2 and numbers.shape[1] == classes:
        return _of_rows(numbers, lengths)
    raise ValueError(
        "Labels must be class indices [batch], or rows [batch, classes] for "
        f"{classes} classes. Received: labels of the shape {numbers.shape}."
    )


def chosen_classes(
    classes: Any, images: int, number: int | None = None
) -> NDArray[np.int32]:
    """Returns classes that were asked for, one for each image, `[n]`.

    Args:
        classes: Class indices `[n]`, or rows `[n, j]` as in `class_of_each`.
        images: Int. How many images there are, `n`.
        number: Int. How many classes there are, `j`. Defaults to as many as
            the classes tell.

    Raises:
        ValueError: If there is not one class for each image.
    """
    numbers = _numbers(classes)
    if number is None:
        most = int(numbers.max(initial=0.0)) + 1
        number = numbers.shape[1] if numbers.ndim == 2 else most
    if numbers.shape[:1] != (images,):
        raise ValueError(
            f"There must be one class for each of {images} images. Received: "
            f"classes of the shape {numbers.shape}."
        )
    if numbers.ndim == 1:
        indices = _indices(numbers, number)
    else:
        indices = class_of_each(numbers, number)
    if np.any(indices == NO_CLASS):
        raise ValueError(
            f"`classes` must be in [0, {number - 1}]. Received: "
            f"{NO_CLASS} for {int(np.sum(indices == NO_CLASS))} images."
        )
    return indices.astype(np.int32)


def rightly_told(classes: Array, lengths: Array) -> NDArray[np.bool_]:
    """Returns a mask of the images told right, `[k]`, of those that count.

    An image of no class does not count. With one class all do, and are right if
    its capsule is longer than a half where it is there, and only there.

    Args:
        classes: Class `[b]` of each image, from `class_of_each`.
        lengths: Lengths `[b, j]`.
    """
    if lengths.shape[1] == 1:
        right: Array = (lengths[:, 0] > PRESENT) == (classes != NO_CLASS)
        return right
    known = classes != NO_CLASS
    return np.asarray(lengths[known].argmax(axis=-1) == classes[known])


def _numbers(labels: Any) -> NDArray[np.float64]:
    array = np.asarray(labels)
    if array.dtype.kind in "OUSmMc":
        shown = repr(array.ravel()[0]) if array.size else array.dtype
        raise ValueError(
            "Labels must be numbers, such as class indices; "
            "`np.unique(labels, return_inverse=True)` makes indices of words. "
            f"Received: {shown}."
        )
    numbers = array.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError(
            "Labels must be finite. Received: "
            f"{np.count_nonzero(~np.isfinite(numbers))} numbers that are not."
        )
    return numbers


def _indices(labels: Array, classes: int) -> NDArray[np.int64]:
    indices = labels.astype(np.int64)
    if np.any(indices != labels):
        raise ValueError(
            "Labels must be whole numbers, the indices of classes. Received: "
            f"{labels[indices != labels][0]}."
        )
    if labels.size and not (NO_CLASS <= labels.min() <= labels.max() < classes):
        raise ValueError(
            f"Labels must be in [0, {classes - 1}]. Received: {indices.min()} "
            f"to {indices.max()}. An image of no class has the label -1."
        )
    return indices


def _presence(labels: Array) -> NDArray[np.int64]:
    if labels.size and not (NO_CLASS <= labels.min() <= labels.max() <= 1):
        raise ValueError(
            "Labels of a network with one class must be 1 where it is there "
            f"and 0 where not. Received: {labels.min():g} to "
            f"{labels.max():g}."
        )
    return np.where(labels > PRESENT, 0, NO_CLASS)


def _of_rows(rows: Array, lengths: Array | None) -> NDArray[np.int64]:
    whole = np.rint(rows)
    is_one = np.abs(rows.sum(axis=1) - 1.0) <= SOFT_SUM_ERROR
    is_one &= (rows >= -_ERROR).all(axis=1)
    shown = (np.abs(rows - whole) <= _ERROR) & (whole >= 0) & (whole <= 1)
    unclear = ~is_one & ~shown.all(axis=1)
    if unclear.any():
        row = np.array2string(
            rows[unclear][0], precision=3, separator=", ", threshold=8
        )
        raise ValueError(
            "Each row of labels must sum to 1, for one class, or be of zeros "
            "and ones, for several or none. Received: "
            f"{row}, which sums to {rows[unclear][0].sum():.3g}. Give class "
            "indices, or zeros and ones."
        )
    classes = np.where(is_one, rows.argmax(axis=1), NO_CLASS)
    several = ~is_one & (whole.sum(axis=1) > 1)
    if several.any():
        if lengths is None:
            raise ValueError(
                "Each image must have one class here. Received: a row with "
                f"{int(whole[several][0].sum())} ones. Give class indices."
            )
        among = np.where(whole[several] > 0, lengths[several], -np.inf)
        classes[several] = among.argmax(axis=1)
    return classes

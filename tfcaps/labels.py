"""The class of each image, read from whatever says it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfcaps.ops import SOFT_SUM_ERROR


def class_of_each(labels: Any, classes: int) -> NDArray[np.int64]:
    """Returns the class of each image, `[b]`.

    Labels are class indices `[b]` or `[b, 1]`, or rows `[b, j]`, one-hot or
    soft, that sum to 1: the first of the largest numbers is that of the class.
    """
    numbers = numbers_of(labels)
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.ndim == 2 and numbers.shape[1] == classes:
        off = np.abs(numbers.sum(axis=1) - 1.0) > SOFT_SUM_ERROR
        if off.any():
            row = numbers[off][0]
            shown = np.array2string(
                row, precision=3, separator=", ", threshold=8
            )
            raise ValueError(
                "Each row of labels must sum to 1, for one class. Received: "
                f"{shown}, which sums to {row.sum():.3g}. Leave out images of "
                "several classes or of none."
            )
        return numbers.argmax(axis=1)
    if numbers.ndim != 1:
        raise ValueError(
            "Labels must be class indices [batch], or rows [batch, classes] "
            f"for {classes} classes. Received: labels of the shape "
            f"{numbers.shape}."
        )
    indices = indices_of(numbers)
    if indices.size and not (0 <= indices.min() <= indices.max() < classes):
        raise ValueError(
            f"Labels must be in [0, {classes - 1}]. Received: {indices.min()} "
            f"to {indices.max()}. Leave out images of no class."
        )
    return indices


def indices_of(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Returns whole numbers as integers, or names one that is not."""
    indices = numbers.astype(np.int64)
    if np.any(indices != numbers):
        raise ValueError(
            "Labels must be whole numbers, the indices of classes. Received: "
            f"{numbers[indices != numbers][0]}."
        )
    return indices


def check_one_each(images: int, others: int, what: str = "label") -> None:
    """Raises `ValueError` unless there is one of something for each image."""
    if images != others:
        raise ValueError(
            f"There must be one {what} for each image. Received: {images} "
            f"images and {others} {what}s."
        )


def numbers_of(labels: Any) -> NDArray[np.float64]:
    """Returns labels as numbers, or says why they are none."""
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


def names_of(
    names: Sequence[str] | None,
    count: int,
    *,
    word: str = "",
    argument: str = "class_names",
) -> list[str]:
    """Returns the names of classes or types, or a word and their numbers.

    Raises:
        ValueError: If there are too few names.
    """
    given = list(names) if names else [f"{word}{k}" for k in range(count)]
    if len(given) < count:
        raise ValueError(
            f"`{argument}` must have {count} names. Received: {len(given)}."
        )
    return given[:count]

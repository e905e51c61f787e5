"""Says which weight or which image makes a network's outputs not finite."""

from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

Array = NDArray[Any]


def check_finite(
    outputs: Any, model: keras.Model, images: Any, start: int = 0
) -> None:
    """Raises `ValueError` unless all outputs for some images are finite.

    Args:
        outputs: Arrays, or a structure of them.
        model: The network that made them.
        images: What it was given: an array, or a list of which the first is.
        start: Int. Number of the first image. Defaults to `0`.
    """
    if all(_is_finite(array) for array in keras.tree.flatten(outputs)):
        return
    raise ValueError(_cause(model, images, start))


def check_weights(weights: Any) -> None:
    """Raises `ValueError` unless weights, variables or arrays, are finite."""
    for weight in weights:
        if not _is_finite(ops.convert_to_numpy(weight)):
            raise ValueError(_of_weight(weight))


def _cause(model: keras.Model, images: Any, start: int) -> str:
    for weight in model.weights:
        if not _is_finite(ops.convert_to_numpy(weight)):
            return _of_weight(weight)
    if isinstance(images, list):
        images = images[0]
    rows = np.asarray(images, np.float64).reshape(len(images), -1)
    bad: Array = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        return (
            "Images must be finite. Received: NaN or infinity in image "
            f"{start + int(bad.argmax())}, counted from 0; "
            f"{int(bad.sum())} of its batch of {len(bad)} have some."
        )
    return (
        f"The outputs of {model.name!r} are not finite, though its weights and "
        f"the images from {start} on are. Their numbers are too large: look at "
        "the range of the images, and at the largest weights."
    )


def _of_weight(weight: Any) -> str:
    path = getattr(weight, "path", None)
    where = f" in {path!r}" if path else ""
    return (
        f"Weights must be finite. Received: NaN or infinity{where}. Train "
        "anew, with a lower learning rate or `clipnorm`, or load an earlier "
        "file."
    )


def _is_finite(array: Any) -> bool:
    kind = array.dtype.kind
    # That of bfloat16 is "V".
    return kind in "biuSUO" or bool(np.isfinite(array).all())

"""Says which weight or which image makes a network's outputs not finite."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray


def check_finite(outputs: Any, model: keras.Model) -> None:
    """Raises `ValueError` unless a model's outputs for images are finite."""
    if all(_is_finite(array) for array in keras.tree.flatten(outputs)):
        return
    check_weights(model.weights)
    raise ValueError(
        f"The outputs of {model.name!r} must be finite. Received: NaN or "
        "infinity, though its weights and the images are finite, so that "
        "numbers get too large in between. Look at the range of the images, "
        "and at the largest weights."
    )


def check_weights(weights: Iterable[Any]) -> None:
    """Raises `ValueError` unless all variables are finite."""
    for weight in weights:
        if not _is_finite(ops.convert_to_numpy(weight)):
            raise ValueError(
                "Weights must be finite. Received: NaN or infinity in "
                f"{weight.path!r}. Train anew, with a lower learning rate or "
                "`clipnorm`, or load an earlier file."
            )


def check_images(images: NDArray[Any], start: int = 0) -> None:
    """Raises `ValueError` unless images, from number `start`, are finite."""
    if _is_finite(images):
        return
    rows = np.isfinite(images).reshape(len(images), -1)
    (bad,) = np.nonzero(~rows.all(axis=1))
    raise ValueError(
        "Images must be finite. Received: NaN or infinity in image "
        f"{start + int(bad[0])}, counted from 0; {len(bad)} of its batch of "
        f"{len(rows)} have some."
    )


def _is_finite(array: Any) -> bool:
    kind = array.dtype.kind
    # That of bfloat16 is "V".
    return kind in "biuSUO" or bool(np.isfinite(array).all())

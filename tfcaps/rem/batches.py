"""Running a model on arrays, a batch at a time."""

from collections.abc import Iterator
from typing import Any

import keras
from numpy.typing import NDArray

Array = NDArray[Any]


def predict_batches(
    model: keras.Model, images: Array, batch_size: int
) -> Iterator[Any]:
    """Yields what a model makes of each batch of images.

    Args:
        model: A functional model.
        images: Its input `[n, h, w, c]`.
        batch_size: Int, at least 1. Most images in a batch.

    Raises:
        ValueError: If there are no images, or the batch size is below 1.
    """
    if not len(images) or batch_size < 1:
        raise ValueError(
            "There must be at least one image, and one in a batch. Received: "
            f"{len(images)} images, batch_size={batch_size}."
        )
    for start in range(0, len(images), batch_size):
        # Not `predict`, which traces the model, and compiles large routings for
        # seconds: more than it saves with a few batches.
        outputs = model(images[start : start + batch_size], training=False)
        yield keras.tree.map_structure(keras.ops.convert_to_numpy, outputs)

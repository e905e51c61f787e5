"""Maps of the couplings towards any class, not only the predicted one."""

from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.graphs import encoder
from tfcaps.rem.batches import images_of, predict_batches
from tfcaps.rem.labels import chosen_classes
from tfcaps.rem.maps.explanation import explained, explanation

Array = NDArray[Any]


def coupling_maps(
    model: keras.Model,
    images: Array,
    classes: ArrayLike | None = None,
    *,
    weight_by_activation: bool = True,
    align: str = "field",
    batch_size: int = 256,
) -> Array:
    """Returns where in images a class looks, by the couplings towards it.

    For the predicted class it is the `saliency` of `explanation`. An image of
    two digits has a map for each of them.

    Args:
        model: As in `explanation`, with children at more than one position.
        images: Its input `[n, h, w, c]`, or a data set of them as in
            `tfcaps.rem.evaluate`, whose labels are not looked at.
        classes: Class of each image, `[n]` or one-hot. Defaults to the
            predicted one.
        weight_by_activation: As in `explanation`. Defaults to `True`.
        align: As in `explanation`. Defaults to `"field"`.
        batch_size: Int. Most images in a batch. Defaults to `256`.

    Returns:
        Array `[n, h, w]`, float32.

    Raises:
        ValueError: If the children have one position or none, there is not one
            class for each image, there is no such class, or as in
            `explanation`.

    Example:

    >>> from tfcaps.models import dr_capsnet
    >>> model = dr_capsnet((12, 12, 1), 3, kernel_size=5, primary_kernel_size=3)
    >>> coupling_maps(model, np.zeros((2, 12, 12, 1), "float32"), [0, 2]).shape
    (2, 12, 12)
    """
    inputs: Any = images
    if classes is None:
        shown = explanation(
            model, weight_by_activation=weight_by_activation, align=align
        )
    else:
        given = keras.Input((), dtype="int32", name="classes")
        shown = explained(model, weight_by_activation, align, given)
        number = int(shown.output["lengths"].shape[-1])
        images = images_of(images, encoder(model))
        inputs = [images, chosen_classes(classes, len(images), number)]
    if "saliency" not in shown.output:
        raise ValueError(
            "Maps of couplings need images, and children at more than one "
            f"position in them. Received: {model.name!r}, where they have "
            "none. See `tfcaps.rem.occlusion` for maps of any network of "
            "images."
        )
    network = keras.Model(shown.input, shown.output["saliency"])
    return np.concatenate(list(predict_batches(network, inputs, batch_size)))

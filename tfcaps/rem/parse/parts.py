"""The looks of parts, and their places in classes."""

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike, NDArray

from tfcaps.graphs import encoder, last_routed_layer
from tfcaps.layers import ConstellationCaps
from tfcaps.ops import check_positive
from tfcaps.rem.parse.trees import Trees


def blueprints(model: keras.Model) -> NDArray[np.float64] | None:
    """Returns the place of each type of part in each class.

    Args:
        model: A functional or sequential model.

    Returns:
        Array `[j, t, 2]`, float64: rows and columns in pixels from the place of
        class `j` to its part of type `t`, NaN where the class has no such part.
        `None` if the last routed layer is no `ConstellationCaps`.

    Example:

    >>> from tfcaps.models import constellation_capsnet
    >>> network = constellation_capsnet((20, 20, 1), 10, part_types=5)
    >>> blueprints(network).shape
    (10, 5, 2)
    """
    layer = last_routed_layer(encoder(model))
    if not isinstance(layer, ConstellationCaps):
        return None
    shifts = ops.convert_to_numpy(layer.shifts).astype(np.float64)
    slots = ops.convert_to_numpy(layer.slots)
    shifts[slots < 0.5] = np.nan
    return np.swapaxes(shifts, 0, 1)


def part_pictures(
    images: ArrayLike, trees: Trees, window: int = 11
) -> NDArray[np.float32]:
    """Returns the mean window of an image around the leaves of each type.

    Leaves are the children in a tree. What lies beyond the border does not
    count.

    Args:
        images: Images `[n, h, w, c]`, uint8 or float.
        trees: What `tfcaps.rem.trees` returns for them.
        window: Int, odd. Rows and columns of a window, in pixels. Defaults to
            `11`.

    Returns:
        Array `[t, window, window, c]`, float32, in the units of the images; NaN
        for a type that is in no tree.

    Raises:
        ValueError: If there is not one tree for each image, the children have
            no places, or `window` is no odd number above 0.
    """
    check_positive(window=window)
    if window % 2 == 0:
        raise ValueError(f"`window` must be odd. Received: window={window}.")
    images = trees.own(images)
    if not trees.has_places:
        raise ValueError("The children of these trees have no places.")
    count, channels = trees.num_types, images.shape[-1]
    image, child = np.nonzero(trees.in_tree)
    types = trees.types[child]
    middle = np.rint(trees.places[image, child]).astype(int)
    half = window // 2
    sums = np.zeros((count, window, window, channels))
    numbers = np.zeros((count, window, window, 1))
    for down, right in np.ndindex(window, window):
        row, column = (middle + (down - half, right - half)).T
        there = (row >= 0) & (row < images.shape[1])
        there &= (column >= 0) & (column < images.shape[2])
        pixels = images[image[there], row[there], column[there]]
        np.add.at(sums[:, down, right], types[there], pixels)
        np.add.at(numbers[:, down, right], types[there], 1.0)
    means = sums / np.maximum(numbers, 1.0)
    means[~numbers.any(axis=(1, 2, 3))] = np.nan
    return means.astype("float32")

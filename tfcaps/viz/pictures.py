"""Draws images, and keeps them in the data of a figure."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

Array = NDArray[Any]


def picture(image: Array) -> Array:
    """Returns an image as it is shown: uint8, `[h, w]` or `[h, w, 3]`.

    Args:
        image: `[h, w, c]`, uint8, or float. Floats beyond [0, 1], such as those
            of a standardised data set, are stretched to it. Two views, as in
            smallNORB, are shown side by side.
    """
    image = side_by_side(np.asarray(image))
    if image.dtype != np.uint8:
        low, high = float(image.min()), float(image.max())
        if low < -1e-3 or high > 1 + 1e-3:
            image = (image - low) / ((high - low) or 1.0)
        image = np.round(255 * np.clip(image, 0, 1)).astype(np.uint8)
    return image[..., 0] if image.shape[-1] == 1 else image


def side_by_side(image: Array) -> Array:
    """Returns `[h, 2w, 1]` of an image `[h, w, 2]`, and others as they are."""
    if image.shape[-1] == 2:
        return np.concatenate([image[..., :1], image[..., 1:]], axis=1)
    return image


def show(panel: Axes, shown: Array) -> None:
    """Draws what `picture` returns, without axes."""
    panel.imshow(shown, cmap="gray", vmin=0, vmax=255)
    without_ticks(panel)


def without_ticks(panel: Axes) -> None:
    """Leaves a panel its frame and its labels."""
    panel.set_xticks([])
    panel.set_yticks([])


def stretched(values: Array) -> Array:
    """Returns a map from 0 to 1; one that is constant is 0."""
    low, high = values.min(), values.max()
    # Below float32's noise there is nothing to see.
    if high - low <= 1e-6 * max(abs(high), 1e-12):
        return np.zeros_like(values)
    return (values - low) / (high - low)

"""Measures how much of a map lies on the object."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

Array = NDArray[Any]


def relevance_mass(
    maps: ArrayLike, masks: ArrayLike, *, margin: int = 2
) -> Array:
    """Returns the share of each map that lies on its mask.

    Only the positive part of the map counts. A map without one counts as
    constant.

    Args:
        maps: Maps `[n, h, w]`.
        masks: Bool `[n, h, w]`, where what is sought is; at least one pixel of
            each image.
        margin: Int, at least 0. By how many pixels masks are widened in every
            direction, also diagonally. Defaults to `2`.

    Returns:
        Array `[n]`, in [0, 1].

    Raises:
        ValueError: If the shapes differ, a mask is empty, or a map is not
            finite.

    References:
        - Arras, Osman, Samek, 2022, https://arxiv.org/abs/2003.07258
    """
    maps, masks = _checked_masks(maps, masks, margin)
    positive = np.maximum(maps, 0.0)
    positive[~np.any(positive, axis=(1, 2))] = 1.0
    total = np.sum(positive, axis=(1, 2))
    return np.sum(positive * masks, axis=(1, 2)) / total


def pointing(maps: ArrayLike, masks: ArrayLike, *, margin: int = 2) -> Array:
    """Tells whether the highest pixel of each map lies on its mask.

    The mean is the share of images whose highest pixel does. If several pixels
    are the highest, the image counts with the share of these on the mask.

    Args:
        maps: As in `relevance_mass`.
        masks: As in `relevance_mass`.
        margin: As in `relevance_mass`. Defaults to `2`.

    Returns:
        Array `[n]`, in [0, 1].

    Raises:
        ValueError: As in `relevance_mass`.

    References:
        - Zhang et al., 2016, https://arxiv.org/abs/1608.00507
    """
    maps, masks = _checked_masks(maps, masks, margin)
    highest = maps == np.max(maps, axis=(1, 2), keepdims=True)
    on_mask = np.count_nonzero(highest & masks, axis=(1, 2))
    return on_mask / np.count_nonzero(highest, axis=(1, 2))


def widened(masks: NDArray[np.bool_], margin: int) -> NDArray[np.bool_]:
    """Returns masks `[n, h, w]` with all pixels up to `margin` beside them."""
    size = (1, 2 * margin + 1, 2 * margin + 1)
    return ndimage.maximum_filter(masks, size, mode="constant", cval=False)


def _checked_masks(
    maps: ArrayLike, masks: ArrayLike, margin: int
) -> tuple[Array, NDArray[np.bool_]]:
    maps, masks = np.asarray(maps, np.float64), np.asarray(masks)
    if maps.ndim != 3 or maps.shape != masks.shape or masks.dtype != bool:
        raise ValueError(
            "`maps` and `masks` (bool) must have the same shape [n, h, w]. "
            f"Received: {maps.shape} and {masks.shape}, {masks.dtype}."
        )
    if margin < 0:
        raise ValueError(f"`margin` must be at least 0. Received: {margin}.")
    empty = np.flatnonzero(~np.any(masks, axis=(1, 2)))
    if len(empty):
        raise ValueError(
            "Every mask must have at least one pixel. Received: none in "
            f"{len(empty)} of {len(masks)}, the first of them at {empty[0]}. "
            "Leave these images out."
        )
    return finite(maps), widened(masks, margin)


def finite(maps: Array) -> Array:
    """Returns the maps, if every number is finite.

    Raises:
        ValueError: If one is not.
    """
    if not np.all(np.isfinite(maps)):
        raise ValueError(
            "`maps` must be finite. Received: some that are not, the first at "
            f"{np.argwhere(~np.isfinite(maps))[0].tolist()}."
        )
    return maps

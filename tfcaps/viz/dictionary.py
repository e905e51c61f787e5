"""Draws the mean of the images that share a parse tree."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.rem import CouplingDictionary
from tfcaps.viz.drawing import Drawing, for_json
from tfcaps.viz.pictures import picture, side_by_side, without_ticks
from tfcaps.viz.style import class_labels, figure

Array = NDArray[Any]


def dictionary_images(
    images: Array,
    keys: ArrayLike,
    predicted: ArrayLike,
    num_classes: int,
    *,
    classes: Sequence[int] | None = None,
    columns: int = 8,
    threshold: float | None = None,
    class_names: Sequence[str] | None = None,
) -> Drawing:
    """Draws the mean image of each class's most frequent keys.

    Args:
        images: Images `[n, h, w, c]`, uint8, or float in [0, 1].
        keys: Their keys `[n, i]`, `Trees.codes` or `Trees.type_codes`.
        predicted: Their predicted classes `[n]`.
        num_classes: Int. Number of classes.
        classes: Ints. The classes to show. Defaults to those that are
            predicted.
        columns: Int. Most keys of a class. Defaults to `8`.
        threshold: Float in (0, 1). Instead of the mean of the values, show the
            share of images in which a value is above it, in diverging colours;
            the reference code has 125/255. Defaults to `None`.
        class_names: Names of the classes. Defaults to their numbers.

    Returns:
        A figure with a row for each class and a column for each key, the most
        frequent first, titled with its number of images.

    Raises:
        ValueError: If there are no images, or not a key and a class for each.
    """
    codes, predictions = np.asarray(keys), np.asarray(predicted)
    if not 0 < len(images) == len(codes) == len(predictions):
        raise ValueError(
            "There must be images, and a key and a class for each. Received: "
            f"{len(images)} images, {len(codes)} keys, {len(predictions)} "
            "classes."
        )
    trees = CouplingDictionary(num_classes)
    trees.update(codes, predictions)
    if classes is None:
        classes = np.unique(predictions).tolist()
    columns = max(1, min(columns, int(trees.num_keys[list(classes)].max())))
    labels = class_labels(class_names, num_classes)
    rows = len(classes)
    drawing = figure(0.85 * columns + 1.4, 0.98 * rows + 0.2)
    panels = drawing.subplots(rows, columns, squeeze=False)
    data = []
    for j, row in zip(classes, panels, strict=True):
        counts = trees.counts(j)
        shown = []
        for panel in row:
            without_ticks(panel)
            panel.set_frame_on(False)
        for panel, key, count in zip(
            row, trees.keys(j)[:columns], counts, strict=False
        ):
            chosen = (predictions == j) & np.all(codes == key, axis=1)
            mean = _mean(images[chosen], threshold)
            panel.imshow(
                mean,
                cmap="gray" if threshold is None else "coolwarm",
                vmin=0,
                vmax=255,
            )
            panel.set_title(str(count), fontsize=7, pad=2)
            shown.append({"key": key, "count": count, "image": mean})
        row[0].set_ylabel(
            f"{labels[j]}\n{len(counts)} key{'s' * (len(counts) != 1)}",
            rotation=0,
            ha="right",
            va="center",
            fontsize=8,
        )
        data.append({"class": labels[j], "keys": len(counts), "shown": shown})
    return Drawing(drawing, for_json({"threshold": threshold, "classes": data}))


def _mean(images: Array, threshold: float | None) -> Array:
    """Returns the mean image as it is shown."""
    values = images.astype(np.float64)
    if images.dtype == np.uint8:
        values /= 255
    if threshold is None:
        return picture(values.mean(axis=0))
    share = side_by_side(np.mean(values > threshold, axis=0))
    return picture(share.mean(axis=-1, keepdims=True))

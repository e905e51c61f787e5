"""Draws the images that a decoder makes of class capsules."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfcaps.viz.drawing import Drawing, figure, for_json, picture, show

Array = NDArray[Any]


def reconstructions(images: Array, decoded: Array) -> Drawing:
    """Draws images over their reconstructions.

    Args:
        images: Images `[n, h, w, c]` in [0, 1]; a dozen at most look well.
        decoded: Their reconstructions, in the same shape.

    Returns:
        A figure with two rows of pictures. The data has the pictures as whole
        numbers from 0 to 255.

    Raises:
        ValueError: If the shapes differ.
    """
    if np.shape(images) != np.shape(decoded):
        raise ValueError(
            "Images and reconstructions must have the same shape. Received: "
            f"{np.shape(images)} and {np.shape(decoded)}."
        )
    drawing = figure(1.1 * len(images) + 0.8, 2.4)
    panels = drawing.subplots(2, len(images), squeeze=False)
    data = {
        "images": [_clipped(image) for image in images],
        "decoded": [_clipped(image) for image in decoded],
    }
    for row, pictures in zip(panels, data.values(), strict=True):
        for panel, shown in zip(row, pictures, strict=True):
            show(panel, shown)
    panels[0, 0].set_ylabel("image", fontsize=9)
    panels[1, 0].set_ylabel("decoded", fontsize=9)
    return Drawing(drawing, for_json(data))


def perturbations(decoded: Array, offsets: Array) -> Drawing:
    """Draws how the reconstruction changes with each component of the pose.

    Args:
        decoded: Images `[d, n, h, w, c]` of one sample: a row of the result of
            `tfcaps.layers.perturb_dimensions`.
        offsets: The numbers added to a component, `[n]`.

    Returns:
        A figure with a row for each component and a column for each offset. The
        data has the pictures as whole numbers from 0 to 255.
    """
    rows, columns = np.shape(decoded)[:2]
    drawing = figure(0.65 * columns + 0.6, 0.65 * rows + 0.5)
    panels = drawing.subplots(rows, columns, squeeze=False)
    pictures = [[_clipped(image) for image in row] for row in decoded]
    for component, row in enumerate(panels):
        for panel, shown in zip(row, pictures[component], strict=True):
            show(panel, shown)
        row[0].set_ylabel(component, rotation=0, fontsize=8, labelpad=10)
    for panel, offset in zip(panels[0], offsets, strict=True):
        panel.set_title(f"{offset:+.2f}", fontsize=8)
    return Drawing(drawing, for_json({"offsets": offsets, "decoded": pictures}))


def _clipped(image: Array) -> Array:
    return picture(np.clip(image, 0, 1))

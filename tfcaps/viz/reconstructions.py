"""Draws the images that a decoder makes of class capsules."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
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
    panels, pictures = _grid(drawing, [images, decoded])
    panels[0, 0].set_ylabel("image", fontsize=9)
    panels[1, 0].set_ylabel("decoded", fontsize=9)
    data = dict(zip(("images", "decoded"), pictures, strict=True))
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
    panels, pictures = _grid(drawing, decoded)
    for component, panel in enumerate(panels[:, 0]):
        panel.set_ylabel(component, rotation=0, fontsize=8, labelpad=10)
    for panel, offset in zip(panels[0], offsets, strict=True):
        panel.set_title(f"{offset:+.2f}", fontsize=8)
    return Drawing(drawing, for_json({"offsets": offsets, "decoded": pictures}))


def _grid(drawing: Figure, images: Any) -> tuple[Array, list[list[Array]]]:
    """Draws rows of images in [0, 1]; returns panels and pictures."""
    pictures = [[picture(np.clip(x, 0, 1)) for x in row] for row in images]
    panels = drawing.subplots(len(images), len(images[0]), squeeze=False)
    for row, shown in zip(panels, pictures, strict=True):
        for panel, image in zip(row, shown, strict=True):
            show(panel, image)
    return panels, pictures

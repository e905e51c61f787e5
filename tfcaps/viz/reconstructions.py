"""Draws the images that a decoder makes of class capsules."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfcaps.viz.drawing import Drawing, figure, show_rows, with_our_look

Array = NDArray[Any]


@with_our_look
def reconstructions(images: Array, decoded: Array) -> Drawing:
    """Draws images over their reconstructions.

    Args:
        images: Images `[n, h, w, c]` in [0, 1]; a dozen at most look well.
        decoded: Their reconstructions, in the same shape.

    Returns:
        A figure with two rows of pictures.

    Raises:
        ValueError: If the shapes differ.
    """
    if np.shape(images) != np.shape(decoded):
        raise ValueError(
            "Images and reconstructions must have the same shape. Received: "
            f"{np.shape(images)} and {np.shape(decoded)}."
        )
    page, panels = figure(1.1 * len(images) + 0.8, 2.4, 2, len(images))
    show_rows(panels, [images, decoded])
    panels[0, 0].set_ylabel("image")
    panels[1, 0].set_ylabel("decoded")
    return page


@with_our_look
def perturbations(decoded: Array, offsets: Array) -> Drawing:
    """Draws how the reconstruction changes with each component of the pose.

    Args:
        decoded: Images `[d, n, h, w, c]` of one sample: a row of the result of
            `tfcaps.layers.perturb_dimensions`.
        offsets: The numbers added to a component, `[n]`.

    Returns:
        A figure with a row for each component and a column for each offset.
    """
    rows, columns = np.shape(decoded)[:2]
    size = 0.65 * columns + 0.6, 0.65 * rows + 0.5
    page, panels = figure(*size, rows, columns)
    show_rows(panels, decoded)
    for component, panel in enumerate(panels[:, 0]):
        panel.set_ylabel(component, rotation=0, labelpad=10)
    for panel, offset in zip(panels[0], offsets, strict=True):
        panel.set_title(f"{offset:+.2f}")
    return page

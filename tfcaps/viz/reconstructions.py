"""What a decoder makes of class capsules."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tfcaps.viz.style import figure

Array = NDArray[Any]


def reconstructions(images: Array, decoded: Array) -> Figure:
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
    drawing = figure(1.1 * len(images) + 0.8, 2.4)
    panels = drawing.subplots(2, len(images), squeeze=False)
    for row, pictures in zip(panels, (images, decoded), strict=True):
        for panel, picture in zip(row, pictures, strict=True):
            _show(panel, picture)
    panels[0, 0].set_ylabel("image", fontsize=9)
    panels[1, 0].set_ylabel("decoded", fontsize=9)
    return drawing


def perturbations(decoded: Array, offsets: Array) -> Figure:
    """Draws how the reconstruction changes with each component of the pose.

    Args:
        decoded: Images `[d, n, h, w, c]` of one sample: a row of the result of
            `tfcaps.layers.perturb_dimensions`.
        offsets: The numbers added to a component, `[n]`.

    Returns:
        A figure with a row for each component and a column for each offset.
    """
    rows, columns = np.shape(decoded)[:2]
    drawing = figure(0.65 * columns + 0.6, 0.65 * rows + 0.5)
    panels = drawing.subplots(rows, columns, squeeze=False)
    for component, row in enumerate(panels):
        for panel, picture in zip(row, decoded[component], strict=True):
            _show(panel, picture)
        row[0].set_ylabel(component, rotation=0, fontsize=8, labelpad=10)
    for panel, offset in zip(panels[0], offsets, strict=True):
        panel.set_title(f"{offset:+.2f}", fontsize=8)
    return drawing


def _show(panel: Axes, picture: Array) -> None:
    # Two views, as in smallNORB, are shown side by side.
    if picture.shape[-1] == 2:
        picture = np.concatenate([picture[..., :1], picture[..., 1:]], axis=1)
    panel.imshow(np.clip(picture, 0, 1), cmap="gray", vmin=0, vmax=1)
    panel.set_xticks([])
    panel.set_yticks([])

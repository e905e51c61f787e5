"""Draws rows of images, such as those that a decoder makes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfcaps.ops import Array
from tfcaps.viz.drawing import Drawing, figure, picture, show, with_our_look


@with_our_look
def picture_rows(
    rows: Sequence[Array] | Array,
    names: Sequence[Any],
    titles: Sequence[str] | None = None,
) -> Drawing:
    """Draws rows of images, such as images over their reconstructions.

    Args:
        rows: Images `[rows, n, h, w, c]` in [0, 1]; a dozen in a row look well.
        names: What stands before each row.
        titles: What stands over each column. Defaults to `None`, nothing.

    Returns:
        A figure.

    Raises:
        ValueError: If the rows differ in their shapes.
    """
    shapes = {np.shape(row) for row in rows}
    if len(shapes) != 1:
        raise ValueError(
            f"Rows of images must have the same shape. Received: {shapes}."
        )
    count = len(rows[0])
    size = 0.8 * count + 0.8, 0.8 * len(rows) + 0.5
    page, panels = figure(*size, len(rows), count)
    for name, row, images in zip(names, panels, rows, strict=True):
        for panel, image in zip(row, images, strict=True):
            show(panel, picture(np.clip(image, 0, 1)))
        row[0].set_ylabel(name, rotation=0, ha="right", va="center")
    for panel, title in zip(panels[0], titles or (), strict=False):
        panel.set_title(title)
    return page

"""Maps of an image by several methods, side by side."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from tfcaps.rem.labels import chosen_classes
from tfcaps.viz.drawing import Drawing, for_json
from tfcaps.viz.pictures import Array, picture, show, stretched, without_ticks
from tfcaps.viz.style import class_labels, figure, in_lines

# Outlines are seen on bright and on dark.
_OUTLINE = (("black", 1.8), ("white", 0.8))


def maps(
    images: Array,
    by_method: Mapping[str, ArrayLike],
    *,
    classes: ArrayLike | None = None,
    masks: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    alpha: float = 0.6,
    colormap: str = "viridis",
) -> Drawing:
    """Draws maps of images, a row for each image, a column for each method.

    Each map is clipped at 0 and stretched to [0, 1] by itself: colours show
    where in an image a method sees the class, not how much of it.

    Args:
        images: Images `[n, h, w, c]`; grey, in colour, or two views, which are
            shown side by side. Half a dozen look well.
        by_method: Maps `[n, h, w]` by the name of the method, such as those of
            `attribution_maps`.
        classes: Class `[n]` that the maps are about, shown beside the images.
            Defaults to `None`.
        masks: Bool `[n, h, w]`, whose outlines are drawn over everything.
            Defaults to `None`.
        class_names: Names of the classes. Defaults to their numbers.
        alpha: Float in [0, 1]. How opaque the maps are. Defaults to `0.6`.
        colormap: Name of matplotlib's colours. Defaults to `"viridis"`.

    Returns:
        A figure; its data has the maps before they are stretched.

    Raises:
        ValueError: If there is no method, or maps, masks or classes are not one
            for each image.
    """
    shown = {name: np.asarray(own) for name, own in by_method.items()}
    outlines = None if masks is None else np.asarray(masks)
    about = None
    if classes is not None:
        about = chosen_classes(classes, len(images))
    _check(len(images), shown, outlines, about)
    pictures = [picture(image) for image in images]
    height, width = pictures[0].shape[:2]
    rows, columns = len(pictures), 1 + len(shown)
    drawing = figure(
        1.25 * columns * max(width / height, 1) + 0.4, 1.3 * rows + 0.4
    )
    panels = drawing.subplots(rows, columns, squeeze=False)
    for panel, title in zip(panels[0], ["image", *shown], strict=True):
        panel.set_title(title, fontsize=9)
    for k, (row, image) in enumerate(zip(panels, pictures, strict=True)):
        show(row[0], image)
        for panel, own in zip(row[1:], shown.values(), strict=True):
            _draw(panel, image, own[k], alpha, colormap)
        if outlines is not None:
            for panel in row:
                _outline(panel, _tiled(outlines[k], image))
    names = None
    if about is not None:
        names = class_labels(class_names, int(about.max()) + 1)
        for panel, j in zip(panels[:, 0], about, strict=True):
            panel.set_ylabel(in_lines(names[j]), fontsize=9)
    data = {
        "images": pictures,
        "maps": {
            name: np.round(own.astype(np.float64), 6)
            for name, own in shown.items()
        },
        "masks": outlines,
        "classes": about,
        "class_names": names,
    }
    return Drawing(drawing, for_json(data))


def _draw(
    panel: Axes, image: Array, own: Array, alpha: float, colormap: str
) -> None:
    show(panel, image)
    positive = stretched(np.maximum(own, 0.0))
    panel.imshow(
        _tiled(positive, image), cmap=colormap, alpha=alpha, vmin=0, vmax=1
    )
    without_ticks(panel)


def _outline(panel: Axes, mask: Array) -> None:
    if mask.any():
        around = np.pad(mask.astype(float), 1)
        places = [np.arange(-1, side + 1) for side in mask.shape[::-1]]
        for colour, width in _OUTLINE:
            panel.contour(
                *places, around, levels=[0.5], colors=colour, linewidths=width
            )
        rows, columns = mask.shape
        panel.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))


def _tiled(values: Array, image: Array) -> Array:
    """Repeats values for each view of an image."""
    return np.tile(values, (1, image.shape[1] // values.shape[1]))


def _check(
    count: int,
    shown: Mapping[str, Array],
    masks: Array | None,
    classes: Array | None,
) -> None:
    if not shown:
        raise ValueError("There must be maps of at least one method.")
    given = {f"maps of {name!r}": own for name, own in shown.items()}
    given |= {"masks": masks} if masks is not None else {}
    given |= {"classes": classes} if classes is not None else {}
    for name, values in given.items():
        if len(values) != count:
            raise ValueError(
                f"There must be one of each for each image. Received: {count} "
                f"images and {len(values)} {name}."
            )

"""Maps over images: where the predicted class looks, and what methods say."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from tfcaps.rem.labels import chosen_classes
from tfcaps.viz.drawing import (
    Drawing,
    class_labels,
    figure,
    for_json,
    in_lines,
    picture,
    show,
    stretched,
    without_ticks,
)

Array = NDArray[Any]
# Outlines are seen on bright and on dark.
_OUTLINE = (("black", 1.8), ("white", 0.8))


def saliency(
    images: Array,
    explanations: Mapping[str, Mapping[str, ArrayLike]],
    *,
    labels: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    alpha: float = 0.5,
    colormap: str = "viridis",
) -> Drawing:
    """Draws saliency maps over images, a row for each model.

    Each map is stretched to [0, 1] by itself, so that colours show where in an
    image a class looks, not how much; a constant map is 0 everywhere. The title
    is the class that the model predicts.

    Args:
        images: Images `[n, h, w, c]`; grey, in colour, or two views, which are
            shown side by side. A dozen at most look well.
        explanations: Name of the model to what `tfcaps.rem.explanation` makes
            of these images.
        labels: Their classes, `[n]` or one-hot, shown over the images. Defaults
            to `None`.
        class_names: Names of the classes. Defaults to their numbers.
        alpha: Float in [0, 1]. How opaque the maps are. Defaults to `0.5`.
        colormap: Name of matplotlib's colours. Defaults to `"viridis"`, whose
            yellow is the highest, also to colour-blind people. The paper's is
            `"jet"`.

    Returns:
        A figure with a row of images and one for each model. The data has the
        maps before they are stretched.

    Raises:
        ValueError: If a model has no saliency map, or not one for each image.
    """
    for name, shown in explanations.items():
        _check_saliency(name, shown, len(images))
    pictures = [picture(image) for image in images]
    first = next(iter(explanations.values()))
    names = class_labels(class_names, np.shape(first["lengths"])[-1])
    rows = 1 + len(explanations)
    height, width = pictures[0].shape[:2]
    drawing = figure(
        1.15 * len(images) * max(width / height, 1) + 0.8, 1.4 * rows
    )
    panels = drawing.subplots(rows, len(images), squeeze=False)
    for panel, image in zip(panels[0], pictures, strict=True):
        show(panel, image)
    panels[0, 0].set_ylabel("image", fontsize=9)
    if labels is not None:
        labels = chosen_classes(labels, len(images), len(names))
        for panel, label in zip(panels[0], labels, strict=True):
            panel.set_title(in_lines(names[label]), fontsize=8)
    for row, (model, shown) in zip(
        panels[1:], explanations.items(), strict=True
    ):
        row[0].set_ylabel(model, fontsize=9)
        maps, classes = np.asarray(shown["saliency"]), shown["classes"]
        for panel, image, grid, j in zip(
            row, pictures, maps, np.asarray(classes), strict=True
        ):
            show(panel, image)
            views = image.shape[1] // grid.shape[1]
            panel.imshow(
                np.tile(stretched(grid), (1, views)),
                cmap=colormap,
                alpha=alpha,
                vmin=0,
                vmax=1,
            )
            without_ticks(panel)
            panel.set_title(in_lines(names[j]), fontsize=8)
    return Drawing(drawing, _data(pictures, explanations, labels, names))


def _check_saliency(
    name: str, shown: Mapping[str, ArrayLike], count: int
) -> None:
    if "saliency" not in shown:
        raise ValueError(
            f"There is no saliency map of {name!r}. The children of its class "
            "capsules must have more than one position; with one, as in "
            "Efficient-CapsNet, the map would be the same everywhere."
        )
    if np.shape(shown["saliency"])[0] != count:
        raise ValueError(
            f"There must be one saliency map for each image. Received: {count} "
            f"images and {np.shape(shown['saliency'])[0]} maps of {name!r}."
        )


def _data(
    pictures: Sequence[Array],
    explanations: Mapping[str, Mapping[str, ArrayLike]],
    labels: ArrayLike | None,
    names: Sequence[str],
) -> dict[str, Any]:
    return for_json(
        {
            "images": pictures,
            "labels": None if labels is None else np.asarray(labels),
            "class_names": names,
            "models": {
                name: {
                    "classes": np.asarray(shown["classes"]),
                    "maps": np.round(
                        np.asarray(shown["saliency"], np.float64), 6
                    ),
                }
                for name, shown in explanations.items()
            },
        }
    )


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

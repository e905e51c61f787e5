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
    shown: dict[str, Array] = {}
    for name, explained in explanations.items():
        if "saliency" not in explained:
            raise ValueError(
                f"There is no saliency map of {name!r}. The children of its "
                "class capsules must have more than one position; with one, as "
                "in Efficient-CapsNet, the map would be the same everywhere."
            )
        shown[name] = np.asarray(explained["saliency"])
    _check(len(images), {f"maps of {n!r}": own for n, own in shown.items()})
    pictures = [picture(image) for image in images]
    first = next(iter(explanations.values()))
    names = class_labels(class_names, np.shape(first["lengths"])[-1])
    predicted = {n: np.asarray(e["classes"]) for n, e in explanations.items()}
    drawing = figure(
        1.15 * len(images) * _wide(pictures[0]) + 0.8, 1.4 * (1 + len(shown))
    )
    panels = drawing.subplots(1 + len(shown), len(images), squeeze=False)
    for row, title in zip(panels, ["image", *shown], strict=True):
        row[0].set_ylabel(title, fontsize=9)
        classes = predicted.get(title)
        if title == "image" and labels is not None:
            classes = labels = chosen_classes(labels, len(images), len(names))
        for k, (panel, image) in enumerate(zip(row, pictures, strict=True)):
            show(panel, image)
            if title in shown:
                _draw(panel, image, shown[title][k], alpha, colormap)
            if classes is not None:
                panel.set_title(in_lines(names[classes[k]]), fontsize=8)
    models = {
        name: {
            "classes": predicted[name],
            "maps": np.round(own.astype(np.float64), 6),
        }
        for name, own in shown.items()
    }
    data = {
        "images": pictures,
        "labels": labels,
        "class_names": names,
        "models": models,
    }
    return Drawing(drawing, for_json(data))


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
            `tfcaps.rem.coupling_maps`.
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
    if not by_method:
        raise ValueError("There must be maps of at least one method.")
    shown = {name: np.asarray(own) for name, own in by_method.items()}
    outlines = None if masks is None else np.asarray(masks)
    given = {f"maps of {name!r}": own for name, own in shown.items()}
    if outlines is not None:
        given["masks"] = outlines
    _check(len(images), given)
    about = names = None
    if classes is not None:
        about = chosen_classes(classes, len(images))
        names = class_labels(class_names, int(about.max()) + 1)
    pictures = [picture(image) for image in images]
    rows, columns = len(pictures), 1 + len(shown)
    drawing = figure(
        1.25 * columns * _wide(pictures[0]) + 0.4, 1.3 * rows + 0.4
    )
    panels = drawing.subplots(rows, columns, squeeze=False)
    for panel, title in zip(panels[0], ["image", *shown], strict=True):
        panel.set_title(title, fontsize=9)
    for k, (row, image) in enumerate(zip(panels, pictures, strict=True)):
        for panel in row:
            show(panel, image)
        for panel, own in zip(row[1:], shown.values(), strict=True):
            _draw(panel, image, np.maximum(own[k], 0.0), alpha, colormap)
        if outlines is not None:
            for panel in row:
                _outline(panel, _tiled(outlines[k], image))
        if about is not None and names is not None:
            row[0].set_ylabel(in_lines(names[about[k]]), fontsize=9)
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


def _check(count: int, given: Mapping[str, Array]) -> None:
    for name, values in given.items():
        if len(values) != count:
            raise ValueError(
                f"There must be one of each for each image. Received: {count} "
                f"images and {len(values)} {name}."
            )


def _wide(image: Array) -> float:
    """Returns how wide an image is for its height, at least 1."""
    height, width = image.shape[:2]
    return max(width / height, 1)


def _draw(
    panel: Axes, image: Array, own: Array, alpha: float, colormap: str
) -> None:
    shown = _tiled(stretched(own), image)
    panel.imshow(shown, cmap=colormap, alpha=alpha, vmin=0, vmax=1)


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

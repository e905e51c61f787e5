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
    explanations: Mapping[str, Mapping[str, ArrayLike] | ArrayLike],
    *,
    labels: ArrayLike | None = None,
    masks: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    alpha: float = 0.5,
    colormap: str = "viridis",
) -> Drawing:
    """Draws maps over images, a row for each model or method.

    Each map is stretched to [0, 1] by itself, so that colours show where in an
    image a class looks, not how much; a constant map is 0 everywhere. The title
    is the class that the model predicts.

    Args:
        images: Images `[n, h, w, c]`; grey, in colour, or two views, which are
            shown side by side. A dozen at most look well.
        explanations: By the name of a model what `tfcaps.rem.explanation` makes
            of these images; or, by any name, maps `[n, h, w]` such as those of
            `tfcaps.rem.coupling_maps`, of which what is below 0 is not shown.
        labels: Their classes, `[n]` or one-hot, shown over the images. Defaults
            to `None`.
        masks: Bool `[n, h, w]`, whose outlines are drawn over everything.
            Defaults to `None`.
        class_names: Names of the classes. Defaults to their numbers.
        alpha: Float in [0, 1]. How opaque the maps are. Defaults to `0.5`.
        colormap: Name of matplotlib's colours. Defaults to `"viridis"`, whose
            yellow is the highest, also to colour-blind people. The paper's is
            `"jet"`.

    Returns:
        A figure with a row of images and one for each model. The data has the
        maps before they are stretched.

    Raises:
        ValueError: If a model has no saliency map, or there is not a map, a
            mask or a class for each image.
    """
    if not explanations:
        raise ValueError("There must be maps of at least one model or method.")
    maps: dict[str, Array] = {}
    above: dict[str, Array] = {}
    number = 0
    for name, shown in explanations.items():
        if not isinstance(shown, Mapping):
            maps[name] = np.asarray(shown)
            continue
        if "saliency" not in shown:
            raise ValueError(
                f"There is no saliency map of {name!r}. The children of its "
                "class capsules must have more than one position; with one, as "
                "in Efficient-CapsNet, the map would be the same everywhere."
            )
        maps[name] = np.asarray(shown["saliency"])
        above[name] = np.asarray(shown["classes"])
        number = np.shape(shown["lengths"])[-1]
    _check(len(images), {f"maps of {n!r}": own for n, own in maps.items()})
    if masks is not None:
        masks = np.asarray(masks)
        _check(len(images), {"masks": masks})
    if labels is not None:
        labels = chosen_classes(labels, len(images), number or None)
        above["image"] = labels
        number = number or int(labels.max()) + 1
    names = class_labels(class_names, number)
    pictures = [picture(image) for image in images]
    height, width = pictures[0].shape[:2]
    drawing = figure(
        1.15 * len(images) * max(width / height, 1) + 0.8, 1.4 * (1 + len(maps))
    )
    panels = drawing.subplots(1 + len(maps), len(images), squeeze=False)
    for row, title in zip(panels, ["image", *maps], strict=True):
        row[0].set_ylabel(title, fontsize=9)
        for k, (panel, image) in enumerate(zip(row, pictures, strict=True)):
            show(panel, image)
            if title in maps:
                own = maps[title][k]
                own = own if title in above else np.maximum(own, 0.0)
                look: Any = {"cmap": colormap, "alpha": alpha}
                over = _tiled(stretched(own), image)
                panel.imshow(over, vmin=0, vmax=1, **look)
            if masks is not None:
                _outline(panel, _tiled(masks[k], image))
            if title in above:
                name = in_lines(names[above[title][k]])
                panel.set_title(name, fontsize=8)
    models = {
        name: {
            "classes": above.get(name),
            "maps": np.round(own.astype(np.float64), 6),
        }
        for name, own in maps.items()
    }
    data = {
        "images": pictures,
        "labels": labels,
        "masks": masks,
        "class_names": names,
        "models": models,
    }
    return Drawing(drawing, for_json(data))


def _check(count: int, given: Mapping[str, Array]) -> None:
    for name, values in given.items():
        if len(values) != count:
            raise ValueError(
                f"There must be one of each for each image. Received: {count} "
                f"images and {len(values)} {name}."
            )


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

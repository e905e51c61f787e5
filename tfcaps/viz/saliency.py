"""Draws where in an image the predicted class looks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.rem.labels import chosen_classes
from tfcaps.viz.drawing import Drawing, for_json
from tfcaps.viz.pictures import picture, show, stretched, without_ticks
from tfcaps.viz.style import class_labels, figure, in_lines

Array = NDArray[Any]


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
        _check(name, shown, len(images))
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


def _check(name: str, shown: Mapping[str, ArrayLike], count: int) -> None:
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

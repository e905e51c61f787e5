"""Maps over images: where the predicted class looks, and what methods say."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tfcaps.labels import check_one_each, class_of_each
from tfcaps.ops import Array
from tfcaps.viz import drawing


@drawing.with_our_look
def saliency(
    images: Array,
    explanations: Mapping[str, Mapping[str, Any]],
    *,
    labels: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
) -> drawing.Drawing:
    """Draws saliency maps over images, a row for each model.

    Each map is stretched to [0, 1] by itself, so that colours show where in an
    image a class looks, not how much; a constant map is 0 everywhere. The title
    is the class that the model predicts. Do not draw maps that are the same for
    any image, or before training: `tfcaps.rem.faithfulness` measures both.

    Args:
        images: Images `[n, h, w, c]`; grey, in colour, or two views, which are
            shown side by side. A dozen at most look well.
        explanations: By the name of a model what `tfcaps.rem.explanation` makes
            of these images: `lengths`, `classes` and `saliency`.
        labels: Their classes, `[n]` or one-hot, shown over the images. Defaults
            to `None`.
        class_names: Names of the classes. Defaults to their numbers.

    Returns:
        A figure with a row of images and one for each model.

    Raises:
        ValueError: If a model has no saliency map, or there is not a map, or a
            class, for each image.
    """
    if not explanations:
        raise ValueError("There must be maps of at least one model.")
    for name, shown in explanations.items():
        if not isinstance(shown, Mapping):
            raise ValueError(
                "`explanations` must be what `tfcaps.rem.explanation` makes of "
                f"the images. Received: {type(shown).__name__} of {name!r}."
            )
        if "saliency" not in shown:
            raise ValueError(
                f"There is no saliency map of {name!r}. The children of its "
                "class capsules must have more than one position; with one, as "
                "in Efficient-CapsNet, the map would be the same everywhere."
            )
        check_one_each(len(images), len(shown["saliency"]), "map")
    number = np.shape(shown["lengths"])[-1]
    above = {name: shown["classes"] for name, shown in explanations.items()}
    if labels is not None:
        above["image"] = class_of_each(labels, number)
        check_one_each(len(images), len(above["image"]))
    names = drawing.class_labels(class_names, number)
    pictures = [drawing.picture(image) for image in images]
    height, width = pictures[0].shape[:2]
    wide = 1.15 * len(images) * max(width / height, 1) + 0.8
    rows = ["image", *explanations]
    page, panels = drawing.figure(wide, 1.4 * len(rows), len(rows), len(images))
    for row, title in zip(panels, rows, strict=True):
        row[0].set_ylabel(drawing.in_lines(title))
        for k, (panel, image) in enumerate(zip(row, pictures, strict=True)):
            drawing.show(panel, image)
            if title in explanations:
                over = _stretched(
                    np.asarray(explanations[title]["saliency"][k])
                )
                # For each view of the image.
                over = np.tile(over, (1, width // over.shape[1]))
                panel.imshow(over, vmin=0, vmax=1, cmap="viridis", alpha=0.5)
            if title in above:
                panel.set_title(drawing.in_lines(names[int(above[title][k])]))
    return page


def _stretched(values: Array) -> Array:
    """Returns a map from 0 to 1; one that is constant is 0."""
    low, high = values.min(), values.max()
    # Below float32's noise there is nothing to see.
    if high - low <= 1e-6 * max(abs(high), 1e-12):
        return np.zeros_like(values)
    return (values - low) / (high - low)

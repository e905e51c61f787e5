"""Figures of a run that show what the children of a tree see of an image."""

from collections.abc import Mapping

import keras

from tfcaps import rem, viz
from training.configs import Config
from training.datasets import Data
from training.figures import Shown, one_of_each
from training.tables import TITLES

# Images, of different classes, that are shown.
_SHOWN = 5

_TEXT = (
    "The first test image of some classes, and its parse tree: the predicted "
    "class, and below it what its children see of the image. These are the "
    "children that are coupled with the class by more than the uniform "
    "coupling, the strongest first, by coupling times activation. A line is as "
    "strong as the coupling (the number, quantised), and the frames on the "
    "image show where the parts are."
)
_CELLS = (
    " Its children see the whole image, or nearly so; each is shown by the "
    "cell of the image at its place."
)
_NO_PARTS = (
    " In this network there are no parts to show: its children see all the "
    "same, or the whole image."
)


def of_models(
    models: Mapping[str, keras.Model], config: Config, data: Data
) -> dict[str, Shown]:
    """Returns the figure of the last model."""
    name, model = list(models.items())[-1]
    images, labels = (part[:_SHOWN] for part in one_of_each(data))
    trees = rem.tree_fields(
        model, images, levels=config.levels, mode=config.mode
    )
    drawing = viz.tree_fields(
        images, trees, labels=labels, class_names=data.class_names
    )
    fields, text = trees[0].fields, _TEXT
    if not fields.is_local:
        text += _NO_PARTS if min(fields.grid[:2]) == 1 else _CELLS
    heading = f"Trees and what their children see, {TITLES[name]}"
    return {"tree_fields": Shown(drawing, heading, text)}

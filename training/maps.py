"""Maps of a run: those of the couplings beside those of other methods."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from tfcaps import rem, viz
from training.datasets import Data
from training.figures import Shown
from training.folder import RunFolder
from training.image_data import Array
from training.tables import TITLES

# Most images that are measured, and fewest, of those that are larger than
# 28x28 pixels: a network sees some 600 changed copies of each.
_MOST = 50
_FEWEST = 16
_PIXELS = 28 * 28
_SUBSETS = 100
# Images, of different classes, whose maps are drawn.
_DRAWN = 6

_TEXT = (
    "Where {title} sees the class that it predicts (beside the image): the map "
    "of its couplings, not quantised, and maps of methods that know nothing of "
    "capsules; yellow is the most in an image{outline}. The table has means "
    "over {count:,} test images. Deletion and insertion are areas under the "
    "relative length of the class as pixels go, or come, in the order of the "
    "map: deletion is the better the smaller, insertion the better the larger. "
    "MuFidelity is the correlation between the map's sum over random parts of "
    "the image and what the class loses without them{masked}. A map no better "
    "than the random one explains nothing."
)
_OUTLINE = "; the line is the outline of the object"
_MASKED = (
    ". Relevance mass is the share of the map on the object or at most two "
    "pixels beside it, pointing the share of images whose highest pixel is "
    "there"
)


def of_models(
    folder: RunFolder, models: Mapping[str, keras.Model], data: Data
) -> dict[str, Shown]:
    """Writes `maps.json` and returns the figure, for capsules with positions.

    The figure has maps of the last model, its table the measures of all.
    """
    # Others have no map of couplings to be compared.
    models = {n: model for n, model in models.items() if _has_map(model)}
    if not models:
        return {}
    drawn = _with_object(_one_of_each(data), data)
    rows = np.union1d(drawn, _with_object(_spread(data), data))
    if not len(drawn):
        return {}
    measured = {n: _Measured(model, data, rows) for n, model in models.items()}
    folder.write_json(
        "maps.json",
        {"models": {n: m.comparison.to_dict() for n, m in measured.items()}},
    )
    name, last = list(measured.items())[-1]
    text = _TEXT.format(
        title=TITLES[name],
        count=len(rows),
        outline=_OUTLINE if data.masks else "",
        masked=_MASKED if data.masks else "",
    )
    drawing = last.drawing(np.searchsorted(rows, drawn))
    heading = f"Maps of several methods, {TITLES[name]}"
    return {"maps": Shown(drawing, heading, text, _table(measured))}


class _Measured:
    """What the maps of a model are, on some of the test images."""

    def __init__(self, model: keras.Model, data: Data, rows: Array):
        self._images = data.test.images[rows]
        self._names = data.class_names
        shown = rem.capsule_outputs(model, couplings=False)
        lengths = shown.predict(self._images, verbose=0)["lengths"]
        self._classes = np.argmax(lengths, axis=-1)
        self._masks = _masks_of(self._classes, data, rows)
        self._maps = rem.attribution_maps(model, self._images)
        self.comparison = rem.compare_maps(
            model,
            self._images,
            self._masks,
            maps=self._maps,
            num_subsets=_SUBSETS,
        )

    def drawing(self, drawn: Array) -> viz.Drawing:
        return viz.maps(
            self._images[drawn],
            {name: maps[drawn] for name, maps in self._maps.items()},
            classes=self._classes[drawn],
            masks=None if self._masks is None else self._masks[drawn],
            class_names=self._names,
        )


def _has_map(model: keras.Model) -> bool:
    return "saliency" in rem.explanation(model).output


def _one_of_each(data: Data) -> Array:
    """Returns the first test image of each of the first classes."""
    labels = data.test.labels
    if labels.ndim == 2:
        labels = np.argmax(labels, axis=-1)
    return np.unique(labels, return_index=True)[1][:_DRAWN]


def _spread(data: Data) -> Array:
    """Returns test images from all over, fewer if they are large."""
    rows, columns, _ = data.image_shape
    count = min(_MOST, max(_FEWEST, _MOST * _PIXELS // (rows * columns)))
    return np.linspace(0, len(data.test.labels) - 1, count).astype(int)


def _with_object(rows: Array, data: Data) -> Array:
    """Leaves out images whose object has no pixel, cut off or too thin."""
    if data.masks is None:
        return rows
    return rows[data.masks.object[rows].any(axis=(1, 2))]


def _masks_of(classes: Array, data: Data, rows: Array) -> Array | None:
    """Returns where the object of each class is, or `None` if not known.

    Of several objects that of the class, or all if none is.
    """
    if data.masks is None:
        return None
    masks = data.masks[rows]
    if masks.of_classes is None:
        return masks.object
    own = (masks.of_classes == classes[:, None])[..., None, None]
    of_class = np.any(masks.parts & own, axis=1)
    known = np.any(of_class, axis=(1, 2))[:, None, None]
    return np.where(known, of_class, masks.object)


def _table(measured: Mapping[str, _Measured]) -> Any:
    tables = {TITLES[n]: m.comparison.table() for n, m in measured.items()}
    rows = [
        (title, *row) for title, (_, rows) in tables.items() for row in rows
    ]
    head = next(iter(tables.values()))[0]
    return ("model", *head), rows

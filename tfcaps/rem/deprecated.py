"""Names that left `tfcaps.rem`: they work for one release, and warn."""

import dataclasses
import importlib
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.graphs import encoder
from tfcaps.rem.batches import images_of
from tfcaps.rem.labels import chosen_classes
from tfcaps.rem.parse.couplings import Levels
from tfcaps.rem.parse.parse_tree import ParseTree
from tfcaps.rem.parse.trees import trees

# Where each of them is now.
MOVED = {
    "ParseTrees": __name__,
    "SampleKeys": __name__,
    "dequantize": "tfcaps.ops",
    "magnitude_masks": "tfcaps.rem.pruning.masks",
    "parse_tree": "tfcaps.rem.parse.parse_tree",
    "part_stability": "tfcaps.rem.evaluation.named_parts",
    "pointing": "tfcaps.rem.maps",
    "pool_types": "tfcaps.rem.parse.dictionary",
    "relevance_mass": "tfcaps.rem.maps",
    "saliency_map": "tfcaps.rem.maps",
    "saliency_masks": "tfcaps.rem.pruning.masks",
    "sample_keys": __name__,
    "t_score": "tfcaps.rem.evaluation.evaluate",
    "type_dictionary": "tfcaps.rem.parse.dictionary",
}
# What to write instead of those that are here.
_INSTEAD = {
    "ParseTrees": "tfcaps.rem.trees(...).parse_tree()",
    "SampleKeys": "tfcaps.rem.Trees",
    "sample_keys": "tfcaps.rem.trees(...).codes",
}
_XPLIQUE = "the package Xplique, which has it for any network"
_GONE = {
    **dict.fromkeys(
        (
            *("MapComparison", "attribution_maps", "compare_maps", "grad_cam"),
            *("integrated_gradients", "mu_fidelity", "occlusion"),
            *("pixel_deletion", "pixel_insertion"),
        ),
        _XPLIQUE,
    ),
    "TreeFields": "`tfcaps.rem.Trees`",
    "tree_fields": "`tfcaps.viz.tree_fields(images, trees, fields)`",
}


def moved(name: str) -> Any:
    """Returns a thing that left `tfcaps.rem`, and warns where it is now.

    Raises:
        AttributeError: If there is and was no such name.
    """
    if name in _GONE:
        raise AttributeError(f"`tfcaps.rem.{name}` is gone. Use {_GONE[name]}.")
    if name not in MOVED:
        raise AttributeError(f"module 'tfcaps.rem' has no attribute {name!r}")
    new = _INSTEAD.get(name, f"{MOVED[name]}.{name}")
    warnings.warn(
        f"`tfcaps.rem.{name}` will go with the next release. Use `{new}`.",
        DeprecationWarning,
        stacklevel=3,
    )
    return getattr(importlib.import_module(MOVED[name]), name)


class SampleKeys(NamedTuple):
    """The keys of images `[n, i]` or `[n, t]`, and their classes `[n]`."""

    keys: NDArray[np.uint8]
    predicted: NDArray[np.int32]


def sample_keys(
    model: keras.Model,
    images: Any,
    levels: Levels = 11,
    *,
    mode: str = "midtread",
    batch_size: int = 256,
    of_types: bool = False,
) -> SampleKeys:
    """Returns the key of each image: `Trees.codes`, or `Trees.type_codes`."""
    found = trees(
        model, images, levels, mode=mode, couplings=False, batch_size=batch_size
    )
    if of_types and not found.has_places:
        raise ValueError(
            "Keys of types need children at several places, `[b, h, w, t, k]`, "
            "and a `tfcaps.layers.ClassCaps` above them. Received: "
            f"{model.name!r}, whose children have no positions. Leave out "
            "`of_types`."
        )
    keys = found.type_codes if of_types else found.codes
    return SampleKeys(keys, found.predicted)


class ParseTrees:
    """Draws parse trees of images, of classes, and of all images."""

    def __init__(
        self,
        model: keras.Model,
        *,
        levels: Levels | None = None,
        mode: str = "midtread",
        threshold: float | Sequence[float] | None = None,
        batch_size: int = 256,
    ):
        self._model = model
        self._levels = levels
        self._options: Any = {"mode": mode, "batch_size": batch_size}
        self._threshold = threshold

    def each(self, images: Any) -> list[ParseTree]:
        """Returns the tree of each image."""
        found = self._trees(images)
        return [found[k : k + 1].parse_tree() for k in range(len(found))]

    def by_class(
        self, images: Any, classes: ArrayLike | None = None
    ) -> list[ParseTree | None]:
        """Returns the tree of each class, `None` of those without an image."""
        if classes is not None:
            images = images_of(images, encoder(self._model))
        found = self._trees(images)
        number = found.lengths.shape[1]
        own: Any = found.predicted
        if classes is not None:
            own = chosen_classes(classes, len(found), number)
        return [
            found[own == j].parse_tree([j]) if np.any(own == j) else None
            for j in range(number)
        ]

    def overall(self, images: Any) -> ParseTree:
        """Returns the tree of all images, from all classes."""
        found = self._trees(images)
        return found.parse_tree(range(found.lengths.shape[1]))

    def _trees(self, images: Any) -> Any:
        found = trees(self._model, images, self._levels, **self._options)
        if self._threshold is None:
            return found
        each = np.broadcast_to(self._threshold, len(found.thresholds))
        return dataclasses.replace(found, thresholds=tuple(each.tolist()))

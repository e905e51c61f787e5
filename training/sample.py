"""Test images that are looked at one by one, and the trees of each model."""

import dataclasses
from typing import Any

import keras
import numpy as np

from tfcaps import graphs, rem
from tfcaps.rem.evaluation.faithfulness import shifted, tree_stability
from training import features
from training.batches import Batches, measured_at_once
from training.configs import Config
from training.datasets import Data
from training.images import Array, Images, Split

MOST = 2000
_SHIFTED = 128  # that are shifted where a backbone looks at them


class Sample:
    """Test images, of which each model's trees are made once.

    They are drawn, as images may come class by class.

    Attributes:
        rows: Which of the test images they are, at most 2,000.
        images: The images.
        labels: Their classes, `[n]`.
        masks: Their parts, or `None` where these are not known.
        class_names: What the classes are called.
    """

    def __init__(
        self,
        data: Data,
        config: Config | None = None,
        cache: dict[str, Array] | None = None,
    ):
        self._data, self._config, self._cache = data, config, cache
        self.rows: Array = np.arange(len(data.test.labels))
        np.random.default_rng(0).shuffle(self.rows)
        self.rows = self.rows[:MOST]
        split = data.test.take(self.rows)
        self.images: Images = split.images
        self.labels = split.labels
        self.masks = data.masks and data.masks[self.rows]
        self.class_names = data.class_names
        self._trees: dict[keras.Model, rem.Trees] = {}
        self._behind: dict[keras.Model, tuple[keras.Model, Split]] = {}
        self._shifted: list[Array] = []

    def behind(self, model: keras.Model) -> tuple[keras.Model, Split]:
        """Returns what is behind a frozen backbone, and maps of test images.

        The `cache` has them, see `features.cache_features`; in a resumed run
        they are made. Without a cache it is the model, and the images, and so
        with masks, of which noise is measured.
        """
        config, cache, data = self._config, self._cache, self._data
        if config is None or cache is None or self.masks is not None:
            return model, data.test
        if features.obstacle(model, config) is not None:
            return model, data.test
        if model not in self._behind:
            none = data.test.take(slice(0))
            tests = dataclasses.replace(data, train=none, validation=none)
            cached = features.cache_features(model, tests, config, cache)
            self._behind[model] = cached.head, cached.data.test
        return self._behind[model]

    def batches(self, model: keras.Model) -> Batches:
        """Returns the images as what is behind a backbone takes them."""
        head, seen = self.behind(model)
        return Batches(*seen, measured_at_once(head), rows=self.rows)

    def trees(self, model: keras.Model) -> rem.Trees:
        """Returns the trees of the images, with couplings as they are."""
        if model not in self._trees:
            head, _ = self.behind(model)
            trees = rem.trees(head, self.batches(model), couplings=False)
            layer = graphs.last_routed_layer(model)
            if head is not model and not hasattr(layer, "child_places"):
                places = rem.receptive_fields(model).child_centres
                places = np.broadcast_to(places, trees.places.shape)
                trees = dataclasses.replace(trees, places=places)
            self._trees[model] = trees
        return self._trees[model]

    def stability(self, model: keras.Model) -> float:
        """Returns that of trees under shifts, of a model on a backbone.

        All models of a run see the maps of the same shifted images, as shifting
        a map by a cell is not shifting an image.
        """
        layer: Any = features.backbone_of(model)
        some = slice(_SHIFTED // (4 if layer.calls_a_sample > 1 else 1))
        if not self._shifted:
            front, size = graphs.split(model, layer)[0], measured_at_once(model)
            self._shifted = [
                features.maps_of(front, part, size)
                for part in shifted(self.images[some], size)
            ]
        inside = self.trees(model).in_tree[some]
        return tree_stability(self.behind(model)[0], self._shifted, inside)

"""Test images that are looked at one by one, and the trees of each model."""

import dataclasses

import keras
import numpy as np

from tfcaps import graphs, rem
from training import features
from training.batches import Batches, measured_at_once
from training.configs import Config
from training.datasets import Data
from training.images import Array, Images, Split

MOST = 2000


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

    def behind(self, model: keras.Model) -> tuple[keras.Model, Split]:
        """Returns what is behind a frozen backbone, and maps of test images.

        That is where the `cache` has them, see `features.cache_features`; or
        else the model, and the images. Of those with masks noise is measured.
        """
        if not self._cache or self._config is None or self.masks is not None:
            return model, self._data.test
        cached = features.cache_features(
            model, self._data, self._config, self._cache
        )
        return cached.head, cached.data.test

    def trees(self, model: keras.Model) -> rem.Trees:
        """Returns the trees of the images, with couplings as they are."""
        if model not in self._trees:
            head, seen = self.behind(model)
            images, labels = seen.take(self.rows)
            batches = Batches(images, labels, measured_at_once(head))
            trees = rem.trees(head, batches, couplings=False)
            layer = graphs.last_routed_layer(model)
            if head is not model and not hasattr(layer, "child_places"):
                places = rem.receptive_fields(model).child_centres
                places = np.broadcast_to(places, trees.places.shape)
                trees = dataclasses.replace(trees, places=places)
            self._trees[model] = trees
        return self._trees[model]

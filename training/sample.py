"""Test images that are looked at one by one, and the trees of each model."""

from collections.abc import Mapping

import keras
import numpy as np

from tfcaps import rem
from training.batches import Batches, measured_at_once
from training.datasets import Data
from training.features import CachedFeatures
from training.images import Array, Images

MOST = 2000


class Sample:
    """Test images, of which each model's trees are made once.

    They are drawn, as images may come class by class.

    Args:
        data: What they are of.
        cached: The features of models with a frozen backbone, where known.

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
        cached: Mapping[keras.Model, CachedFeatures] | None = None,
    ):
        self.rows: Array = np.arange(len(data.test.labels))
        np.random.default_rng(0).shuffle(self.rows)
        self.rows = self.rows[:MOST]
        split = data.test.take(self.rows)
        self.images: Images = split.images
        self.labels = split.labels
        self.masks = data.masks and data.masks[self.rows]
        self.class_names = data.class_names
        self._cached = cached or {}
        self._trees: dict[keras.Model, rem.Trees] = {}

    def behind_backbone(self, model: keras.Model) -> tuple[keras.Model, Images]:
        """Returns the part of a model behind its backbone, and what it takes.

        Where no features are known, these are the model and the images.
        """
        if model not in self._cached:
            return model, self.images
        cached = self._cached[model]
        return cached.head, cached.data.test.images.take(self.rows)

    def trees(self, model: keras.Model) -> rem.Trees:
        """Returns the trees of the images, with couplings as they are."""
        if model not in self._trees:
            head, images = self.behind_backbone(model)
            batches = Batches(images, self.labels, measured_at_once(head))
            self._trees[model] = rem.trees(head, batches, couplings=False)
        return self._trees[model]

"""Test images that are looked at one by one, and the trees of each model."""

import keras
import numpy as np

from tfcaps import rem
from training.batches import Batches, measured_at_once
from training.datasets import Data
from training.images import Array, Images

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

    def __init__(self, data: Data):
        self.rows: Array = np.arange(len(data.test.labels))
        np.random.default_rng(0).shuffle(self.rows)
        self.rows = self.rows[:MOST]
        split = data.test.take(self.rows)
        self.images: Images = split.images
        self.labels = split.labels
        self.masks = data.masks and data.masks[self.rows]
        self.class_names = data.class_names
        self._trees: dict[keras.Model, rem.Trees] = {}

    def trees(self, model: keras.Model) -> rem.Trees:
        """Returns the trees of the images, with couplings as they are."""
        if model not in self._trees:
            few = measured_at_once(model)
            batches = Batches(self.images, self.labels, few)
            self._trees[model] = rem.trees(model, batches, couplings=False)
        return self._trees[model]

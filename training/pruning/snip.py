"""Prunes the least salient weights before the training (SNIP)."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from tfcaps import rem
from training import images as pixels
from training.batches import Batches
from training.configs import Config
from training.datasets.data import Data
from training.image_data import Images

# Images on which SNIP measures saliencies, an equal part of each class.
_SAMPLES = 1024


def begin(
    model: keras.Model, config: Config, data: Data, batches: Batches
) -> None:
    """Prunes, and keeps what is pruned."""
    arranged = all_classes(config, data, batches)
    rem.prune_single_shot(model, arranged, config.final_sparsity)


def all_classes(
    config: Config, data: Data, batches: Batches
) -> Iterator[tuple[Any, Any]]:
    """Returns batches of training images, each of which shows every class."""
    images, labels = data.train
    draw = np.random.default_rng(config.seed).permutation(len(labels))
    # In turn one image of each class, so that every batch shows all of them.
    rank = np.empty(len(labels), int)
    for j in range(data.num_classes):
        members = draw[labels[draw] == j]
        rank[members] = np.arange(len(members)) * data.num_classes + j
    rows = np.argsort(rank)[:_SAMPLES]
    if batches.augment.crop is not None:  # `Batches` cuts them at random places
        crop = batches.augment.crop
        images = Images(pixels.centre_crop(images.pixels, crop))
    return (
        batches.arrange(images[part], labels[part])
        for part in np.array_split(rows, -(-len(rows) // config.batch_size))
    )

"""Prunes after each epoch what the validation loss does not need."""

import keras
import numpy as np

from cli import UserError
from tfcaps import rem
from training.batches import Batches
from training.configs import Config
from training.datasets.data import Data


def begin(
    model: keras.Model, config: Config, data: Data, batches: Batches
) -> None:
    """Begins the search for thresholds."""
    images, labels = data.validation
    if not len(labels):
        raise UserError(
            "--pruning iterative needs validation images; give --validation "
            "a share above 0."
        )
    drawn = np.random.default_rng(0).permutation(len(labels))
    rows = np.sort(drawn[: config.search_samples])
    rem.prune_iteratively(
        model,
        (images[rows], labels[rows]),
        tolerance=config.tolerance,
        max_searches=config.max_searches,
        min_accuracy=config.min_accuracy,
        max_sparsity=config.final_sparsity,
    )

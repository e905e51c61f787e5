"""Prunes the smallest magnitudes at once, in the middle of the training."""

import keras

from tfcaps import rem
from training.batches import Batches
from training.configs import Config
from training.datasets.data import Data

SCHEDULED = True


def begin(
    model: keras.Model, config: Config, data: Data, batches: Batches
) -> None:
    """Begins pruning that happens once."""
    middle = (config.pruning_begin + config.pruning_end) / 2
    step = max(round(middle * config.epochs * batches.num_batches), 1)

    def schedule(now: int) -> tuple[bool, float]:
        return now == step, config.final_sparsity

    rem.prune_low_magnitude(model, schedule, scope=config.scope)

"""Prunes whole filters and types of capsules, more and more of them."""

import keras

from tfcaps import rem
from training.batches import Batches
from training.configs import Config
from training.datasets.data import Data
from training.pruning.polynomial import polynomial_schedule
from training.pruning.snip import all_classes

SCHEDULED = True


def begin(
    model: keras.Model,
    config: Config,
    data: Data,
    batches: Batches,
    original: keras.Model | None = None,
) -> None:
    """Begins structured pruning, by polynomial decay.

    Or goes on with a network that `rem.compact` made of `original`.
    """
    samples = None
    if config.pruning_criterion == "taylor":
        samples = list(all_classes(config, data, batches))
    rem.prune_structured(
        model,
        polynomial_schedule(config, batches.num_batches),
        units=config.pruning_units,
        criterion=config.pruning_criterion,
        target=config.pruning_target,
        scope=config.pruning_scope,
        batches=samples,
        seed=config.seed,
        original=original,
    )

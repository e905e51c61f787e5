"""Prunes whole filters and types of capsules, more and more of them."""

from typing import Any

import keras

from cli import UserError
from tfcaps import rem
from training.batches import Batches
from training.configs import Config
from training.datasets.data import Data
from training.pruning.polynomial import polynomial_schedule
from training.pruning.snip import all_classes

SCHEDULED = True


def begin(
    model: keras.Model, config: Config, data: Data, batches: Batches
) -> None:
    """Begins structured pruning, by polynomial decay."""
    samples = None
    if config.pruning_criterion == "taylor":
        samples = list(all_classes(config, data, batches))
    rem.prune_structured(
        model,
        polynomial_schedule(config, batches.num_batches),
        **_settings(config),
        criterion=config.pruning_criterion,
        batches=samples,
        seed=config.seed,
    )


def check(model: keras.Model, config: Config) -> None:
    """Begins it on a model that is not needed, before anything is trained.

    Raises:
        UserError: If nothing of the units may leave, or not so much of it.
    """
    schedule = polynomial_schedule(config, steps_per_epoch=1)
    try:
        rem.prune_structured(model, schedule, **_settings(config))
    except ValueError as error:
        raise UserError(
            "--pruning structured with --final-sparsity "
            f"{config.final_sparsity:g} does not fit: {error}"
        ) from error


def _settings(config: Config) -> dict[str, Any]:
    return {
        "units": config.pruning_units,
        "target": config.pruning_target,
        "scope": config.pruning_scope,
    }

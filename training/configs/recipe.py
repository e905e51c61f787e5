"""The paper's recipe for any data set: `training/run.py --recipe paper`."""

import dataclasses
from typing import Any

from training.configs import Config

# Levels other than 11; γ-CapsNet has a hidden and a class layer.
LEVELS: dict[str, int | tuple[int, ...]] = {
    "gamma_capsnet": (11, 6),
    "efficient_conv_capsnet": 21,
}
BATCH_SIZE = 128
# What only trainings of hundreds of epochs do.
LONG: dict[str, dict[str, Any]] = {
    "deepcaps_rem": {"hard_margin_from": 100},
}
# The released settings, which have no target for the sparsity.
SETTINGS: dict[str, Any] = {
    "epochs": 1000,
    "patience": 200,
    "learning_rate": 1e-3,
    "learning_rate_decay": 0.99,
    "pruning": "iterative",
    "final_sparsity": 0.999,  # no limit
    "max_searches": 40,
    "decay": 1e-4,
    "decay_factor": 0.99,
    "decay_targets": ("transformations", "kernels"),
    "coupling_spread": 0.0,
    "coupling_polarization": 0.0,
    "coupling_crowding": 0.0,
    "counterfactual_necessity": 0.0,
    "counterfactual_sufficiency": 0.0,
}


def published(config: Config, model: str | None = None) -> Config:
    """Returns a run's settings with those of the paper's recipe.

    Args:
        config: The settings of a data set.
        model: Name of the network. Defaults to that of `config`.
    """
    model = model or config.model
    return dataclasses.replace(
        config,
        model=model,
        levels=LEVELS.get(model, 11),
        batch_size=BATCH_SIZE,
        **SETTINGS,
        **LONG.get(model, {}),
    )

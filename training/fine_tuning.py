"""The settings with which a whole network is trained after its capsules."""

import dataclasses

from training.configs import Config

# The learning rate becomes this share of that of the capsules.
_SLOWER = 0.1


def settings(config: Config) -> Config:
    """Returns those of the epochs after the capsules' own.

    What changes during a training has come to its end: losses have their full
    weight, nothing more is pruned or decays.
    """
    hardened = config.hard_margin_from is not None
    return dataclasses.replace(
        config,
        epochs=config.fine_tune_epochs,
        learning_rate=_SLOWER * config.learning_rate,
        learning_rate_decay=None,
        coupling_ramp=0.0,
        decay=0.0,
        hard_margin_from=0 if hardened else None,
        sharpness_start=None,
    )


def title(name: str) -> str:
    """Returns the name of a model's fine-tuning, for its back-up."""
    return f"{name}-tuned"

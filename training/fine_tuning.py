"""Fine-tunes a whole network after its capsules: settings, and masks."""

import dataclasses

import keras

from tfcaps.rem.pruning.masks import DEFAULT_TARGETS, target_variables
from tfcaps.rem.pruning.pruning import Pruning, begin
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


def keep_pruned(model: keras.Model) -> None:
    """Keeps what is 0 at 0 while a compiled model is trained further."""
    weights = target_variables(model.trainable_variables, DEFAULT_TARGETS)
    masks = [keras.ops.convert_to_numpy(weight) != 0 for weight in weights]
    begin(model, Pruning(weights, masks))

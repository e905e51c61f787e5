"""The callbacks of a training that follow from its settings."""

import math
from typing import Any

import keras

import tfcaps
from cli import UserError
from tfcaps import rem
from tfcaps.rem import sharpness
from training import objectives, pruning
from training.batches import Batches
from training.configs import Config
from training.feeding import epoch_starter
from training.finite import StopIfNotFinite
from training.folder import RunFolder
from training.stopping import StopOnValidation


def of_training(
    model: keras.Model, config: Config, batches: Batches
) -> list[keras.callbacks.Callback]:
    """Returns what the settings ask of each training.

    Args:
        model: Compiled.
        config: Settings of this training.
        batches: The training batches.

    Raises:
        UserError: If `hard_margin_from` does not fit the network's loss.
    """
    callbacks = [epoch_starter(batches), StopIfNotFinite(batches)]
    if getattr(model, "pruning", None) is not None:
        callbacks.insert(0, rem.UpdatePruningStep())
    if (sharp := sharpness.scheduled_layers(model)) and config.sharpness_start:
        final = max(layer.routing.sharpness for layer in sharp)
        schedule = objectives.sharpness(config, final)
        callbacks.append(rem.SharpnessSchedule(schedule))
    loss = model.loss
    if isinstance(loss, dict):
        loss = loss.get("lengths")
        if "evidence" in model.loss:
            callbacks.append(_blueprints(config, batches))
    # On JAX the margin is a constant, and stays where it begins.
    is_constant = keras.backend.backend() == "jax"
    if isinstance(loss, tfcaps.losses.SpreadLoss) and not is_constant:
        callbacks.append(tfcaps.losses.IncreaseMargin(loss))
    if config.hard_margin_from is not None:
        if not isinstance(loss, tfcaps.losses.MarginLoss):
            raise UserError(
                "hard_margin_from needs a network with the margin loss, which "
                f"{config.model} does not have."
            )
        callbacks.append(
            tfcaps.losses.HardenMargin(loss, config.hard_margin_from)
        )
    return callbacks


def _blueprints(
    config: Config, batches: Batches
) -> tfcaps.callbacks.BlueprintEstimation:
    """Returns what sets the blueprints of a network of parts.

    A network that has been trained stays as narrow and as hard as it is.
    """
    given: dict[str, Any] = {"widths": None, "hard": 1.0}
    if config.width_start is not None:
        given = {"widths": (config.width_start, 2.0)}
    return tfcaps.callbacks.BlueprintEstimation(
        batches.images, batches.labels, config.epochs, seed=config.seed, **given
    )


def stop_on_validation(
    name: str, folder: RunFolder, validation: Batches
) -> StopOnValidation:
    """Returns what ends a training by its validation images.

    Args:
        name: `"baseline"` or `"rem"`.
        folder: Settings of the run, and where the measures are kept.
        validation: Validation batches, as the model is trained on.

    Raises:
        UserError: If there are no validation images.
    """
    config = folder.config
    if not len(validation.labels):
        raise UserError(
            "patience and stop_accuracy need validation images; give "
            "--validation a share above 0."
        )
    takes_best = name == "baseline" and config.patience is not None
    ends = name == "rem" and pruning.is_scheduled(config.pruning)
    return StopOnValidation(
        validation,
        folder.path / f"validation-{name}.json",
        patience=config.patience,
        accuracy=config.stop_accuracy,
        not_before=math.ceil(config.pruning_end * config.epochs) if ends else 0,
        compare_from=config.hard_margin_from or 0,
        best=folder.best_path(name) if takes_best else None,
    )

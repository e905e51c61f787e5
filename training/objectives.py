"""Losses, optimiser and schedules of a training."""

import math
from typing import Any

import keras
from keras.optimizers import schedules

import tfcaps
from cli import UserError
from tfcaps import graphs, rem
from tfcaps.callbacks import (
    BlueprintEstimation,
    IncreaseMargin,
    SharpnessSchedule,
    scheduled_layers,
)
from tfcaps.parts import ConstellationModel
from training import models, pruning
from training.batches import Batches, repeated
from training.configs import Config
from training.datasets import Data

# Weight of the squared error of one pixel.
RECONSTRUCTION = 5e-4
# Share of the training at which the routing has its own sharpness.
_SHARP_AT = 0.6


def with_outputs(
    classifier: keras.Model, name: str, config: Config, data: Data
) -> keras.Model:
    """Returns a network with the outputs that it is trained on."""
    if models.network(config.model).loss == "evidence":
        if isinstance(classifier, ConstellationModel):
            return classifier
        plain = rem.classifier(classifier)
        return ConstellationModel(plain.input, plain.output, plain.name)
    counterfactual = any(config.counterfactual_weights)
    if name != "rem" or not (counterfactual or any(config.coupling_weights)):
        return classifier
    labels = data.train.labels
    count = len(repeated(labels) if config.balanced else labels)
    ramp = config.coupling_ramp * config.epochs * count / config.batch_size
    return rem.add_couplings(
        classifier, ramp_steps=round(ramp), counterfactual=counterfactual
    )


def compile_model(
    model: keras.Model, name: str, config: Config, steps_per_epoch: int
) -> None:
    """Gives a model its optimiser, losses and metrics."""
    optimizer = keras.optimizers.Adam(learning_rate(config, steps_per_epoch))
    if name == "rem" and config.decay:
        optimizer = rem.sensitivity_decay(
            optimizer,
            decay_rate(config, steps_per_epoch),
            targets=config.decay_targets,
        )
    if isinstance(model, ConstellationModel):
        model.compile(optimizer)  # it has losses of its own
        return
    metrics: Any = ["accuracy"]
    if isinstance(model.output, dict):
        metrics = {"lengths": metrics}
    model.compile(optimizer, losses(model, config), metrics=metrics)


def losses(model: keras.Model, config: Config) -> Any:
    """Returns the loss of the lengths, or a dict for several outputs."""
    is_spread = models.network(config.model).loss == "spread"
    lengths = (
        tfcaps.losses.SpreadLoss() if is_spread else tfcaps.losses.MarginLoss()
    )
    if not isinstance(model.output, dict):
        return lengths
    places = 1
    if config.coupling_types:
        classifier = rem.classifier(model)
        places = math.prod(graphs.children_grid(classifier)[:-1])
        if places == 1:
            raise UserError(
                "--coupling-types needs children at several places, which "
                f"{classifier.name} does not have."
            )
    every = {
        "lengths": lengths,
        "reconstruction": tfcaps.losses.ReconstructionLoss(RECONSTRUCTION),
        "couplings": tfcaps.losses.CouplingLoss(
            *config.coupling_weights, share=config.coupling_share, places=places
        ),
        "counterfactual": tfcaps.losses.CounterfactualLoss(
            *config.counterfactual_weights, margin=0.2 if is_spread else None
        ),
    }
    return {name: every[name] for name in model.output}


def learning_rate(
    config: Config, steps_per_epoch: int
) -> schedules.LearningRateSchedule:
    """Returns the learning rate: a cosine to 0, or exponential per epoch."""
    first, factor = config.learning_rate, config.learning_rate_decay
    if factor is not None:
        return _by_epoch(first, factor, steps_per_epoch)
    return schedules.CosineDecay(first, config.epochs * steps_per_epoch)


def decay_rate(
    config: Config, steps_per_epoch: int
) -> schedules.LearningRateSchedule:
    """Returns that of the decay: a polynomial to 0, or exponential per epoch.

    With the first, the last steps only fit what is left; the second is that of
    the paper.
    """
    first, steps = config.decay, config.epochs * steps_per_epoch
    if config.decay_factor is not None:
        return _by_epoch(first, config.decay_factor, steps_per_epoch)
    return schedules.PolynomialDecay(first, steps, 0.0, config.decay_power)


def _by_epoch(
    first: float, factor: float, steps: int
) -> schedules.LearningRateSchedule:
    return schedules.ExponentialDecay(first, steps, factor, staircase=True)


def changes(
    model: keras.Model, name: str, config: Config, data: Data, batches: Batches
) -> list[keras.callbacks.Callback]:
    """Returns the callbacks that change a compiled model while it is trained.

    They prune, and set the sharpness of the routing, the blueprints of parts,
    and the margins of losses.
    """
    callbacks: list[keras.callbacks.Callback | None] = []
    if name == "rem":
        callbacks.append(pruning.callback(config, data, batches))
    sharp = scheduled_layers(model)
    if sharp and (start := config.sharpness_start):
        growth = max(layer.routing.sharpness for layer in sharp) / start
        last = max(round(_SHARP_AT * config.epochs), 1)
        callbacks.append(
            SharpnessSchedule(
                lambda epoch: start * growth ** min(epoch / last, 1.0)
            )
        )
    if isinstance(model, ConstellationModel) and model.estimates_blueprints:
        callbacks.append(_blueprints(model, config, batches))
    loss = model.loss
    if isinstance(loss, dict):
        loss = loss.get("lengths")
    # On JAX the margin is a constant, and stays where it begins.
    is_constant = keras.backend.backend() == "jax"
    if isinstance(loss, tfcaps.losses.SpreadLoss) and not is_constant:
        callbacks.append(IncreaseMargin(loss))
    return [callback for callback in callbacks if callback is not None]


def _blueprints(
    model: ConstellationModel, config: Config, batches: Batches
) -> BlueprintEstimation:
    """Returns what moves the blueprints of a network.

    One that has been trained stays as narrow and hard as it is, and of a given
    number types are not merged.
    """
    settings: dict[str, Any] = {}
    if config.part_types is not None:
        settings = {"merge": None}
    if model.is_trained:
        settings = {"widths": None, "hard": 1.0, "merge": None}
    return BlueprintEstimation(
        batches.images,
        batches.labels,
        config.epochs,
        seed=config.seed,
        **settings,
    )

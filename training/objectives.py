"""Losses, optimiser and schedules of a training."""

import math
from typing import Any

import keras
from keras.optimizers import schedules

import tfcaps
from cli import UserError
from tfcaps import graphs, rem
from tfcaps.callbacks import BlueprintEstimation, HardenParts
from tfcaps.parts import ConstellationModel
from tfcaps.rem.sharpness import scheduled_layers
from training import models
from training.batches import Batches, repeated
from training.configs import Config
from training.datasets import Data

# Weight of the squared error of one pixel.
RECONSTRUCTION = 5e-4
# Share of the training at which the routing has its own sharpness.
_SHARP_AT = 0.6
# Share of the training with hard competition of parts, and of those on a
# backbone.
_HARD, _HARD_ON_BACKBONE = 0.35, 0.5


def with_outputs(
    network: keras.Model, name: str, config: Config, data: Data
) -> keras.Model:
    """Returns a network with the outputs that it is trained on."""
    if models.network(config.model).loss == "evidence":
        if isinstance(network, ConstellationModel):
            return network
        classes = rem.encoder(network)
        return ConstellationModel(classes.input, classes.output, classes.name)
    counterfactual = any(config.counterfactual_weights)
    if name != "rem" or not (counterfactual or any(config.coupling_weights)):
        return network
    labels = data.train.labels
    seen = len(repeated(labels) if config.balanced else labels)
    ramp = config.coupling_ramp * config.epochs * seen / config.batch_size
    return rem.add_couplings(
        network, ramp_steps=round(ramp), counterfactual=counterfactual
    )


def compile_model(
    model: keras.Model,
    name: str,
    config: Config,
    steps_per_epoch: int,
    network: keras.Model,
) -> None:
    """Gives a model its optimiser, losses and metrics."""
    optimizer = keras.optimizers.Adam(learning_rate(config, steps_per_epoch))
    if name == "rem" and config.decay:
        optimizer = rem.sensitivity_decay(
            optimizer,
            decay_rate(config, steps_per_epoch),
            targets=config.decay_targets,
        )
    minimised = losses(model, config, network)
    metrics: Any = ["accuracy"]
    if isinstance(model.output, dict):
        metrics = {"lengths": metrics}
    model.compile(optimizer, minimised, metrics=metrics)


def losses(model: keras.Model, config: Config, network: keras.Model) -> Any:
    """Returns the loss of the lengths, or a dict for several outputs."""
    if isinstance(model, ConstellationModel):
        return "auto"
    is_spread = models.network(config.model).loss == "spread"
    lengths = (
        tfcaps.losses.SpreadLoss() if is_spread else tfcaps.losses.MarginLoss()
    )
    if not isinstance(model.output, dict):
        return lengths
    places = 1
    if config.coupling_types:
        places = math.prod(graphs.children_grid(network)[:-1])
        if places == 1:
            raise UserError(
                "--coupling-types needs children at several places, which "
                f"{network.name} does not have."
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
    """Learning-rate schedule: cosine to 0, or exponential per epoch."""
    first, factor = config.learning_rate, config.learning_rate_decay
    if factor is not None:
        return schedules.ExponentialDecay(
            first, steps_per_epoch, factor, staircase=True
        )
    return schedules.CosineDecay(first, config.epochs * steps_per_epoch)


def decay_rate(
    config: Config, steps_per_epoch: int
) -> schedules.LearningRateSchedule:
    """Schedule of the decay: polynomial to 0, or exponential per epoch.

    With the first, the last steps only fit what is left; the second is that of
    the paper.
    """
    first, factor = config.decay, config.decay_factor
    if factor is not None:
        return schedules.ExponentialDecay(
            first, steps_per_epoch, factor, staircase=True
        )
    return schedules.PolynomialDecay(
        first, config.epochs * steps_per_epoch, 0.0, config.decay_power
    )


def changes(
    model: keras.Model, config: Config, batches: Batches
) -> list[keras.callbacks.Callback]:
    """Returns the callbacks that change a compiled model while it is trained.

    They set the step of pruning, the sharpness of the routing, the blueprints
    of parts, and the margins of losses.
    """
    callbacks: list[keras.callbacks.Callback] = []
    if getattr(model, "pruning", None) is not None:
        callbacks.append(rem.UpdatePruningStep())
    sharp = scheduled_layers(model)
    if sharp and (start := config.sharpness_start):
        growth = max(layer.routing.sharpness for layer in sharp) / start
        last = max(round(_SHARP_AT * config.epochs), 1)
        callbacks.append(
            rem.SharpnessSchedule(
                lambda epoch: start * growth ** min(epoch / last, 1.0)
            )
        )
    loss = model.loss
    if isinstance(model, ConstellationModel):
        callbacks.append(_of_parts(model, config, batches))
    elif isinstance(loss, dict):
        loss = loss.get("lengths")
    # On JAX the margin is a constant, and stays where it begins.
    is_constant = keras.backend.backend() == "jax"
    if isinstance(loss, tfcaps.losses.SpreadLoss) and not is_constant:
        callbacks.append(tfcaps.losses.IncreaseMargin(loss))
    return callbacks


def _of_parts(
    model: ConstellationModel, config: Config, batches: Batches
) -> keras.callbacks.Callback:
    """Returns what hardens the parts of a network, and moves its blueprints.

    A network that has been trained stays as narrow and hard as it is, and of a
    given number types are not merged.
    """
    width = config.width_start
    if not model.estimates_blueprints:
        share = 1.0 if width is None else _HARD_ON_BACKBONE
        return HardenParts(share, config.epochs)
    return BlueprintEstimation(
        batches.images,
        batches.labels,
        config.epochs,
        widths=None if width is None else (width, 2.0),
        hard=1.0 if width is None else _HARD,
        merge=None if width is None or config.part_types is not None else 0.5,
        seed=config.seed,
    )

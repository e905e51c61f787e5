"""Losses, optimiser and schedules of a training."""

import math
from typing import Any

import keras
import numpy as np
from keras.optimizers import schedules

import tfcaps
from cli import UserError
from tfcaps import graphs, rem
from tfcaps.rem.sharpness import scheduled_layers
from training import models, presets
from training.batches import Batches, repeated
from training.configs import Config
from training.datasets import Data

# Images from which the templates of parts are taken.
_TEMPLATE_SAMPLES = 500
# Weight of the squared error of one pixel.
RECONSTRUCTION = 5e-4
# Share of the training at which the routing has its own sharpness.
_SHARP_AT = 0.6
# Share of the training with hard competition of parts that are known, and of
# those on a backbone.
_HARD, _HARD_ON_BACKBONE = 0.35, 0.5
# Weight of the class beside that of the type at each place.
_EVIDENCE = 0.3


def with_outputs(
    network: keras.Model, name: str, config: Config, data: Data
) -> keras.Model:
    """Returns a network with the outputs that it is trained on."""
    if models.network(config.model).loss == "evidence":
        if config.backbone is not None or config.shared_parts:
            return tfcaps.models.with_templates(network, template_size=None)
        if config.width_start is not None:
            return tfcaps.models.with_templates(network)
        draw = np.random.default_rng(config.seed)
        some = draw.permutation(len(data.train.labels))[:_TEMPLATE_SAMPLES]
        images = data.train.images[np.sort(some)]
        return tfcaps.models.with_templates(network, images)
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
    if isinstance(minimised, dict):
        told = "evidence" if "evidence" in minimised else "lengths"
        metrics = {told: metrics}
    weights = None
    if config.shared_parts:
        _, *grid, _ = model.output["presence"].shape
        weights = {"evidence": _EVIDENCE, "presence": math.prod(grid)}
    model.compile(optimizer, minimised, weights, metrics)


def losses(
    model: keras.Model, config: Config, network: keras.Model
) -> keras.losses.Loss | dict[str, keras.losses.Loss]:
    """Returns the loss of the lengths, or a dict for several outputs."""
    is_spread = models.network(config.model).loss == "spread"
    lengths = (
        tfcaps.losses.SpreadLoss() if is_spread else tfcaps.losses.MarginLoss()
    )
    if not isinstance(model.output, dict):
        return lengths
    if "evidence" in model.output:
        if presets.is_mapped(config):
            return tfcaps.losses.constellation_losses(**presets.MAP_LOSSES)
        if "reconstruction" in model.output:
            return tfcaps.losses.constellation_losses()
        if config.shared_parts:
            return {
                "evidence": tfcaps.losses.EvidenceLoss(generative=0.0),
                "presence": keras.losses.SparseCategoricalCrossentropy(
                    ignore_class=-1
                ),
            }
        # Nothing but these keeps the parts of photos few and of one type.
        every = tfcaps.losses.constellation_losses(sparsity=0.05, ambiguity=0.1)
        return {name: every[name] for name in model.output}
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
    if isinstance(loss, dict):
        if "evidence" in loss:
            # A network that has been trained stays as narrow and hard as it is,
            # and of a given number types are not merged.
            width = config.width_start
            settings: dict[str, Any] = {"widths": None, "hard": 1.0}
            if config.backbone is not None or config.shared_parts:
                if width is not None:
                    share = _HARD_ON_BACKBONE if config.backbone else _HARD
                    settings["hard"] = share
            else:
                if width is not None:
                    settings = {"widths": (width, 2.0)}
                if width is None or config.part_types is not None:
                    settings["merge"] = None
            blueprints = tfcaps.callbacks.BlueprintEstimation(
                batches.images,
                batches.labels,
                config.epochs,
                seed=config.seed,
                **settings,
            )
            callbacks.append(blueprints)
        loss = loss.get("lengths")
    # On JAX the margin is a constant, and stays where it begins.
    is_constant = keras.backend.backend() == "jax"
    if isinstance(loss, tfcaps.losses.SpreadLoss) and not is_constant:
        callbacks.append(tfcaps.losses.IncreaseMargin(loss))
    return callbacks

"""Losses, optimiser and schedules of a training."""

import math
from collections.abc import Callable
from typing import Any

import keras

import tfcaps
from cli import UserError
from tfcaps import graphs, rem
from training import models
from training.configs import Config
from training.finite import guarded
from training.pairs import both_found, share_found

# Share of the training at which the routing has its own sharpness.
_SHARP_AT = 0.6


def compile_model(
    model: keras.Model,
    name: str,
    config: Config,
    steps_per_epoch: int,
    network: keras.Model,
) -> None:
    """Gives a model its optimiser, losses and metrics.

    Args:
        model: What is trained.
        name: `"baseline"`, or `"rem"`.
        config: Settings of the run.
        steps_per_epoch: Int. Steps after which the next epoch begins.
        network: The network in it, from images to lengths.
    """
    optimizer = keras.optimizers.Adam(learning_rate(config, steps_per_epoch))
    if name == "rem" and config.decay:
        optimizer = rem.sensitivity_decay(
            optimizer,
            decay_rate(config, steps_per_epoch),
            targets=config.decay_targets,
        )
    minimised = losses(model, config, network)
    # The accuracies of Sabour et al. and of Efficient-CapsNet's code.
    accuracies: list[Any] = (
        [both_found, share_found] if config.pairs else ["accuracy"]
    )
    metrics: Any = accuracies
    if isinstance(minimised, dict):
        told = "evidence" if "evidence" in minimised else "lengths"
        metrics = {told: accuracies}
    model.compile(guarded(optimizer), loss=minimised, metrics=metrics)


def losses(
    model: keras.Model, config: Config, network: keras.Model
) -> keras.losses.Loss | dict[str, keras.losses.Loss]:
    """Returns the loss of the lengths, or a dict for several outputs.

    Args:
        model: What is trained.
        config: Settings of the run.
        network: The network in it, from images to lengths.
    """
    is_spread = models.network(config.model).loss == "spread"
    lengths = (
        tfcaps.losses.SpreadLoss() if is_spread else tfcaps.losses.MarginLoss()
    )
    if not isinstance(model.output, dict):
        return lengths
    if "evidence" in model.output:
        return tfcaps.losses.constellation_losses()
    every = {
        "lengths": lengths,
        "reconstruction": tfcaps.losses.ReconstructionLoss(
            config.reconstruction_weight
        ),
        "couplings": tfcaps.losses.CouplingLoss(
            *config.coupling_weights,
            share=config.coupling_share,
            places=_places(network) if config.coupling_types else 1,
        ),
        "counterfactual": tfcaps.losses.CounterfactualLoss(
            *config.counterfactual_weights, margin=0.2 if is_spread else None
        ),
    }
    return {name: every[name] for name in model.output}


def _places(model: keras.Model) -> int:
    """Returns at how many places the children of the class capsules stand.

    Raises:
        UserError: If they have no positions.
    """
    *grid, _ = graphs.children_grid(model)
    if math.prod(grid) == 1:
        raise UserError(
            "--coupling-types needs children at several places, which "
            f"{model.name} does not have."
        )
    return math.prod(grid)


def learning_rate(
    config: Config, steps_per_epoch: int
) -> keras.optimizers.schedules.LearningRateSchedule:
    """It falls to 0 as a cosine, or by a factor from epoch to epoch."""
    if config.learning_rate_decay is not None:
        return keras.optimizers.schedules.ExponentialDecay(
            config.learning_rate,
            steps_per_epoch,
            config.learning_rate_decay,
            staircase=True,
        )
    return keras.optimizers.schedules.CosineDecay(
        config.learning_rate, config.epochs * steps_per_epoch
    )


def decay_rate(
    config: Config, steps_per_epoch: int
) -> keras.optimizers.schedules.LearningRateSchedule:
    """It falls to 0, so that the last steps only fit what is left.

    Or by a factor from epoch to epoch, as in the paper.
    """
    if config.decay_factor is not None:
        return keras.optimizers.schedules.ExponentialDecay(
            config.decay, steps_per_epoch, config.decay_factor, staircase=True
        )
    return keras.optimizers.schedules.PolynomialDecay(
        config.decay,
        config.epochs * steps_per_epoch,
        0.0,
        power=config.decay_power,
    )


def sharpness(config: Config, final: float) -> Callable[[int], float]:
    """Returns the sharpness of each epoch, up to `final`."""
    start = config.sharpness_start or final
    last = max(round(_SHARP_AT * config.epochs), 1)
    return lambda epoch: start * (final / start) ** min(epoch / last, 1.0)

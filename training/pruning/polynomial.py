"""Prunes the smallest magnitudes, more and more of them, as tfmot does."""

import importlib.util
from collections.abc import Callable
from typing import Any

import keras

from tfcaps import rem
from training.batches import Batches
from training.configs import Config
from training.datasets.data import Data

SCHEDULED = True


def begin(
    model: keras.Model, config: Config, data: Data, batches: Batches
) -> None:
    """Begins polynomial decay."""
    schedule = polynomial_schedule(config, batches.num_batches)
    rem.prune_low_magnitude(model, schedule, scope=config.scope)


def polynomial_schedule(config: Config, steps_per_epoch: int) -> Any:
    """Polynomial decay over the configured part of the training."""
    begin, end, frequency = update_steps(config, steps_per_epoch)
    if keras.backend.backend() == "jax" or not _has_tfmot():
        return _without_tfmot(config.final_sparsity, begin, end, frequency)
    # Here and nowhere else: importing tfmot turns `tf.keras` into Keras 2.
    import tensorflow_model_optimization as tfmot

    return tfmot.sparsity.keras.PolynomialDecay(
        0.0, config.final_sparsity, begin, end, frequency=frequency
    )


def update_steps(config: Config, steps_per_epoch: int) -> tuple[int, int, int]:
    """Returns the first and the last step that prune, and how many apart."""
    steps = config.epochs * steps_per_epoch
    begin = round(config.pruning_begin * steps)
    end = max(round(config.pruning_end * steps), begin + 1)
    # About a hundred updates, the last of them at `end`.
    frequency = max((end - begin) // 100, 1)
    return begin, begin + (end - begin) // frequency * frequency, frequency


def _has_tfmot() -> bool:
    return importlib.util.find_spec("tensorflow_model_optimization") is not None


def _without_tfmot(
    final: float, begin: int, end: int, frequency: int
) -> Callable[[int], tuple[bool, float]]:
    """Returns tfmot's polynomial decay from 0, without tfmot."""
    polynomial = keras.optimizers.schedules.PolynomialDecay(
        0.0, end - begin, final, power=3.0
    )

    def schedule(step: int) -> tuple[bool, float]:
        is_time = begin <= step <= end and not (step - begin) % frequency
        return is_time, float(polynomial(max(step - begin, 0)))

    return schedule

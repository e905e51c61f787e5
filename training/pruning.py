"""The pruning strategies of the command line: `--pruning NAME`.

| name | what is pruned when |
|---|---|
| `polynomial` | the smallest magnitudes, more and more of them (tfmot) |
| `one_shot` | the same all at once, in the middle of the training |
| `snip` | the least salient weights, before the training |
| `iterative` | after each epoch what the validation loss does not need |
| `none` | nothing |

Each begins the strategy on a compiled model; `rem.UpdatePruningStep` drives it
and `rem.strip_pruning` ends it.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tfcaps import rem
from tfcaps.cli import UserError
from tfcaps.rem.pruning import Pruning
from tfcaps.rem.pruning import begin as begin_pruning
from tfcaps.rem.targets import DEFAULT_TARGETS, target_variables
from training import images as pixels
from training.batches import Batches, to_float
from training.configs import Config
from training.datasets import Data

# Images on which SNIP measures saliencies, an equal part of each class.
_SNIP_SAMPLES = 1024


def begin(
    model: keras.Model, config: Config, data: Data, batches: Batches
) -> None:
    """Begins the strategy of the settings.

    Args:
        model: A compiled model that has not been trained.
        config: Settings of the run.
        data: Images and labels; the validation images guard `iterative`.
        batches: The training batches.

    Raises:
        UserError: If the strategy needs validation images and there are none.
    """
    STRATEGIES[config.pruning](model, config, data, batches)


def go_on(model: keras.Model) -> None:
    """Keeps what is 0 at 0 while a compiled model is trained further."""
    weights = target_variables(model.trainable_variables, DEFAULT_TARGETS)
    masks = [keras.ops.convert_to_numpy(weight) != 0 for weight in weights]
    begin_pruning(model, Pruning(model, DEFAULT_TARGETS, masks))


def _polynomial(model, config, data, batches) -> None:
    schedule = polynomial_schedule(config, batches.num_batches)
    rem.prune_low_magnitude(model, schedule, scope=config.scope)


def _one_shot(model, config, data, batches) -> None:
    middle = (config.pruning_begin + config.pruning_end) / 2
    step = max(round(middle * config.epochs * batches.num_batches), 1)

    def schedule(now: int) -> tuple[bool, float]:
        return now == step, config.final_sparsity

    rem.prune_low_magnitude(model, schedule, scope=config.scope)


def _snip(model, config, data, batches) -> None:
    images, labels = data.train
    draw = np.random.default_rng(config.seed).permutation(len(labels))
    # In turn one image of each class, so that every batch shows all of them.
    rank = np.empty(len(labels), int)
    for j in range(data.num_classes):
        members = draw[labels[draw] == j]
        rank[members] = np.arange(len(members)) * data.num_classes + j
    chosen = np.argsort(rank)[:_SNIP_SAMPLES]
    if batches.augment.crop is not None:  # `Batches` cuts them at random places
        images = pixels.centre_crop(images, batches.augment.crop)
    arranged = (
        batches.arrange(to_float(images[part]), labels[part])
        for part in np.array_split(chosen, -(-len(chosen) // config.batch_size))
    )
    rem.prune_single_shot(model, arranged, config.final_sparsity)


def _iterative(model, config, data, batches) -> None:
    images, labels = data.validation
    if not len(labels):
        raise UserError(
            "--pruning iterative needs validation images; give --validation "
            "a share above 0."
        )
    chosen = np.random.default_rng(0).permutation(len(labels))
    chosen = np.sort(chosen[: config.search_samples])
    rem.prune_iteratively(
        model,
        (to_float(images[chosen]), labels[chosen]),
        tolerance=config.tolerance,
        max_searches=config.max_searches,
        min_accuracy=config.min_accuracy,
        max_sparsity=config.final_sparsity,
    )


def _none(model, config, data, batches) -> None:
    del model, config, data, batches


STRATEGIES: dict[str, Callable[..., None]] = {
    "polynomial": _polynomial,
    "iterative": _iterative,
    "snip": _snip,
    "one_shot": _one_shot,
    "none": _none,
}


def polynomial_schedule(config: Config, steps_per_epoch: int) -> Any:
    """Polynomial decay over the configured part of the training."""
    steps = config.epochs * steps_per_epoch
    begin = round(config.pruning_begin * steps)
    end = max(round(config.pruning_end * steps), begin + 1)
    # About a hundred updates, the last of them at `end`.
    frequency = max((end - begin) // 100, 1)
    end = begin + (end - begin) // frequency * frequency
    if keras.backend.backend() == "jax":
        return _without_tfmot(config.final_sparsity, begin, end, frequency)
    # Here and nowhere else: importing tfmot turns `tf.keras` into Keras 2.
    import tensorflow_model_optimization as tfmot

    return tfmot.sparsity.keras.PolynomialDecay(
        0.0, config.final_sparsity, begin, end, frequency=frequency
    )


def _without_tfmot(
    final: float, begin: int, end: int, frequency: int
) -> Callable[[int], tuple[bool, float]]:
    """Returns tfmot's polynomial decay from 0, without TensorFlow."""
    polynomial = keras.optimizers.schedules.PolynomialDecay(
        0.0, end - begin, final, power=3.0
    )

    def schedule(step: int) -> tuple[bool, float]:
        is_time = begin <= step <= end and not (step - begin) % frequency
        return is_time, float(polynomial(max(step - begin, 0)))

    return schedule

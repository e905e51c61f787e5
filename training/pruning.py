"""The pruning strategies of the command line: `--pruning NAME`.

Each is a function that begins it on a compiled model; `rem.UpdatePruningStep`
drives it and `rem.strip_pruning` ends it. To add one, add its function, its
line in `_BEGIN`, and its name in `training/configs.py`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from cli import UserError
from tfcaps import rem
from training import images as pixels
from training.batches import Batches
from training.configs import Config
from training.datasets import Data
from training.image_data import Images

# Those that prune up to the setting `pruning_end`; no training stops before.
SCHEDULED = ("polynomial", "one_shot", "structured")
# Images on which saliencies are measured, an equal part of each class.
_SAMPLES = 1024


def begin(
    model: keras.Model, config: Config, data: Data, batches: Batches
) -> None:
    """Begins the strategy of the settings."""
    _BEGIN[config.pruning](model, config, data, batches)


def _polynomial(
    model: keras.Model, config: Config, data: Data, batches: Batches
) -> None:
    schedule = polynomial_schedule(config, batches.num_batches)
    rem.prune_low_magnitude(model, schedule, scope="global")


def _one_shot(
    model: keras.Model, config: Config, data: Data, batches: Batches
) -> None:
    middle = (config.pruning_begin + config.pruning_end) / 2
    step = max(round(middle * config.epochs * batches.num_batches), 1)

    def schedule(now: int) -> tuple[bool, float]:
        return now == step, config.final_sparsity

    rem.prune_low_magnitude(model, schedule, scope="global")


def _structured(
    model: keras.Model, config: Config, data: Data, batches: Batches
) -> None:
    schedule = polynomial_schedule(config, batches.num_batches)
    rem.prune_structured(model, schedule)


def check_structured(model: keras.Model, config: Config) -> None:
    """Begins it on a model that is not needed, before anything is trained."""
    schedule = polynomial_schedule(config, steps_per_epoch=1)
    try:
        rem.prune_structured(model, schedule)
    except ValueError as error:
        raise UserError(
            "--pruning structured with --final-sparsity "
            f"{config.final_sparsity:g} does not fit: {error}"
        ) from error


def _snip(
    model: keras.Model, config: Config, data: Data, batches: Batches
) -> None:
    arranged = _all_classes(config, data, batches)
    rem.prune_single_shot(model, arranged, config.final_sparsity)


def _iterative(
    model: keras.Model, config: Config, data: Data, batches: Batches
) -> None:
    images, labels = data.validation
    if not len(labels):
        raise UserError(
            "--pruning iterative needs validation images; give --validation "
            "a share above 0."
        )
    rem.prune_iteratively(
        model,
        (images[:], labels),
        max_searches=config.max_searches,
        min_accuracy=config.min_accuracy,
        max_sparsity=config.final_sparsity,
    )


_BEGIN: dict[str, Callable[..., None]] = {
    "polynomial": _polynomial,
    "one_shot": _one_shot,
    "structured": _structured,
    "snip": _snip,
    "iterative": _iterative,
    "none": lambda *unused: None,
}


def polynomial_schedule(
    config: Config, steps_per_epoch: int
) -> "PolynomialDecay":
    """Returns the schedule of the settings, over a part of the training.

    There are about a hundred updates, the last of them at its end.
    """
    steps = config.epochs * steps_per_epoch
    begin = round(config.pruning_begin * steps)
    end = max(round(config.pruning_end * steps), begin + 1)
    every = max((end - begin) // 100, 1)
    end = begin + (end - begin) // every * every
    return PolynomialDecay(config.final_sparsity, begin, end, every)


class PolynomialDecay:
    """tfmot's schedule from a sparsity of 0, without tfmot."""

    def __init__(self, final: float, begin: int, end: int, every: int):
        self.final_sparsity = final
        self.begin, self.end, self.every = begin, end, every
        self._polynomial = keras.optimizers.schedules.PolynomialDecay(
            0.0, end - begin, final, power=3.0
        )

    def __call__(self, step: int) -> tuple[bool, float]:
        """Returns whether it is time to prune, and the sparsity."""
        done = step - self.begin
        is_time = self.begin <= step <= self.end and not done % self.every
        return is_time, float(self._polynomial(max(done, 0)))


def _all_classes(
    config: Config, data: Data, batches: Batches
) -> Iterator[tuple[Any, Any]]:
    """Yields batches of training images, each of which shows every class."""
    images, labels = data.train
    draw = np.random.default_rng(config.seed).permutation(len(labels))
    # In turn one image of each class, so that every batch shows all of them.
    rank = np.empty(len(labels), int)
    for j in range(data.num_classes):
        members = draw[labels[draw] == j]
        rank[members] = np.arange(len(members)) * data.num_classes + j
    rows = np.argsort(rank)[:_SAMPLES]
    if (crop := batches.augment.crop) is not None:
        # `Batches` cuts them at random places.
        images = Images(pixels.centre_crop(images.pixels, crop))
    for part in np.array_split(rows, -(-len(rows) // config.batch_size)):
        yield batches.arrange(images[part], labels[part])

"""The pruning strategies of the command line: `--pruning NAME`.

`begin` begins one on a compiled model, `rem.UpdatePruningStep` drives it, and
`rem.strip_pruning` ends it. To add one, add its case to `begin`, its name to
`training/configs.py`.
"""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from cli import UserError
from tfcaps import rem
from tfcaps.rem.pruning.prune import PolynomialDecay
from training.batches import Batches
from training.configs import Config
from training.datasets import Data
from training.images import Images, centre_crop

# Images on which saliencies are measured, an equal part of each class.
_SAMPLES = 1024


def begin(
    model: keras.Model, config: Config, data: Data, batches: Batches
) -> None:
    """Begins the strategy of the settings."""
    final, steps = config.final_sparsity, batches.num_batches
    match config.pruning:
        case "polynomial":
            schedule = polynomial_schedule(config, steps)
            rem.prune_low_magnitude(model, schedule, scope="global")
        case "one_shot":
            middle = (config.pruning_begin + config.pruning_end) / 2
            moment = max(round(middle * config.epochs * steps), 1)
            rem.prune_low_magnitude(
                model, lambda step: (step == moment, final), scope="global"
            )
        case "structured":
            rem.prune_structured(model, polynomial_schedule(config, steps))
        case "snip":
            arranged = _all_classes(config, data, batches)
            rem.prune_single_shot(model, arranged, final)
        case "iterative":
            images, labels = data.validation
            if not len(labels):
                raise UserError(
                    "--pruning iterative needs validation images; give "
                    "--validation a share above 0."
                )
            rem.prune_iteratively(
                model,
                (images[:], labels),
                max_searches=config.max_searches,
                min_accuracy=config.min_accuracy,
                max_sparsity=final,
            )


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


def polynomial_schedule(
    config: Config, steps_per_epoch: int
) -> PolynomialDecay:
    """Returns the schedule of the settings, over a part of the training."""
    return PolynomialDecay.of_share(
        config.final_sparsity,
        config.pruning_begin,
        config.pruning_end,
        config.epochs * steps_per_epoch,
    )


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
        images = Images(centre_crop(images.pixels, crop))
    for part in np.array_split(rows, -(-len(rows) // config.batch_size)):
        yield batches.arrange(images[part], labels[part])

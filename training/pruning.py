"""The pruning strategies of the command line: `--pruning NAME`."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from cli import UserError
from tfcaps import rem
from training.batches import Batches
from training.configs import Config
from training.datasets import Data
from training.images import Images, centre_crop

# Images on which saliencies are measured, an equal part of each class.
_SAMPLES = 1024


def callback(config: Config, data: Data, batches: Batches) -> rem.Prune | None:
    """Returns the callback that prunes as the settings say, if they do."""
    settings: dict[str, Any] = {}
    match config.pruning:
        case "none":
            return None
        case "snip":
            settings["data"] = _all_classes(data, batches, config.seed)
        case "iterative":
            images, labels = data.validation
            settings["data"] = images[:], labels
            settings["max_searches"] = config.max_searches
            settings["min_accuracy"] = config.min_accuracy
    if not config.final_sparsity:
        return None
    return rem.Prune(
        config.final_sparsity,
        config.pruning,
        begin=config.pruning_begin,
        end=config.pruning_end,
        **settings,
    )


def check_structured(model: keras.Model, config: Config) -> None:
    """Begins it on a model that is not needed, before anything is trained."""
    try:
        rem.Prune(config.final_sparsity, "structured").set_model(model)
    except ValueError as error:
        raise UserError(
            "--pruning structured with --final-sparsity "
            f"{config.final_sparsity:g} does not fit: {error}"
        ) from error


def _all_classes(
    data: Data, batches: Batches, seed: int
) -> Iterator[tuple[Any, Any]]:
    """Yields batches of training images, each of which shows every class."""
    images, labels = data.train
    draw = np.random.default_rng(seed).permutation(len(labels))
    # In turn one image of each class, so that every batch shows all of them.
    rank = np.empty(len(labels), int)
    for j in range(data.num_classes):
        members = draw[labels[draw] == j]
        rank[members] = np.arange(len(members)) * data.num_classes + j
    rows = np.argsort(rank)[:_SAMPLES]
    if (crop := batches.augment.crop) is not None:
        # `Batches` cuts them at random places.
        images = Images(centre_crop(images.pixels, crop))
    for part in np.array_split(rows, -(-len(rows) // batches.batch_size)):
        yield batches.arrange(images[part], labels[part])

"""Settings for a user's own pictures, by how many and how large.

python training/run.py --rem --dataset photos/

The budget is counted in steps, and not in passes over pictures, of which there
may be few. Pruning and the ramps of losses are shares of it.
"""

import dataclasses
import math
from pathlib import Path

import numpy as np

from training.configs import Config, figures
from training.datasets import own

MODEL = "parts_capsnet_unshared"
_STEPS = 3000
_FEWEST_EPOCHS = 8
# Images in a step, for training sets below so many images.
_BATCHES = ((600, 16), (3000, 32), (math.inf, 64))
# Sides of images that the network takes as they are, in pixels.
_SMALLEST, _LARGEST = 16, 64
# Sides of those that are resized: of small pictures and of large ones.
_SMALL, _LARGE = 32, 64
_LARGE_FROM = 200


def get_config(dataset: str, model: str | None = None) -> Config | None:
    """Returns the settings for a folder or a CSV file of pictures.

    Args:
        dataset: The folder or file.
        model: What `--model` names. Only the network that is chosen here gets
            losses that need positions.

    Returns:
        `None` if it has no pictures, or such that are too small for parts.
    """
    found = own.survey(Path(dataset))
    if found is None or found.shorter_side < _SMALLEST:
        return None
    batch_size = next(b for most, b in _BATCHES if found.num_training < most)
    steps = math.ceil(found.num_training / batch_size)
    settings = {
        "dataset": dataset,
        "epochs": max(math.ceil(_STEPS / steps), _FEWEST_EPOCHS),
        "batch_size": batch_size,
        "resize": _side(found),
        "measured": True,
        "shift": 3,
        "rotation": 15.0,
        "brightness": (0.7, 1.3),
        "contrast": (0.7, 1.3),
    }
    if model not in (None, MODEL):
        return Config(**settings)
    return dataclasses.replace(
        figures.get_config(),
        model=MODEL,
        # Few pictures of a class say little of what they have in common.
        coupling_spread=0.05,
        coupling_polarization=0.1,
        final_sparsity=0.5,
        **settings,
    )


def about(config: Config) -> str | None:
    """Returns a line of what is done with a user's pictures, and why."""
    found = own.survey(Path(config.dataset))
    if found is None:
        return None
    sides = np.array(found.sizes)
    text = f"{len(sides):,}, sides of {sides.min():,}"
    if sides.min() != sides.max():
        text += f" to {sides.max():,}"
    text += " pixels"
    if config.resize is not None:
        text += f", resized to {config.resize}x{config.resize} (--resize)"
    steps = math.ceil(found.num_training / config.batch_size)
    return (
        f"{text}; {config.epochs} epochs (--epochs) of about {steps:,} steps "
        f"of {config.batch_size} (--batch-size) for {config.model} (--model)"
    )


def _side(found: own.Survey) -> int | None:
    if found.is_square and found.shorter_side <= _LARGEST:
        return None
    return _LARGE if found.shorter_side >= _LARGE_FROM else _SMALL

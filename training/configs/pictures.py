"""Settings for a user's own pictures, by how many and how large.

python training/run.py --rem --dataset photos/

The budget is counted in steps, and not in passes over pictures, of which there
may be few. Pruning and the ramps of losses are shares of it.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training import invariance
from training.configs import Config, figures, photos, small_images
from training.datasets import own

MODEL = "parts_capsnet_pictures"
# That of large pictures.
_PHOTOS = "parts_capsnet_photos_unshared"
_STEPS = 2200
_FEWEST_EPOCHS = 8
# Most rounds of these steps.
_ROUNDS = 3
# Images in a step, for training sets below so many images.
_BATCHES = ((600, 16), (3000, 32), (math.inf, 64))
# Sides of images that the network takes as they are, in pixels.
_SMALLEST, _LARGEST = 16, 64
# Side of those that are resized, and from where on they are photos.
_SIDE = 32
_LARGE_FROM = 128
# Classes are made equally frequent if one has so many times another's.
_UNBALANCED = 1.5
# Largest shift, as a share of the side.
_SHIFT = 0.1
# Share of pictures whose channels are exchanged, where colours tell nothing.
_RECOLOURED = 0.5


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
    batch_size = next(b for most, b in _BATCHES if len(found.training) < most)
    counts = _counts(found)
    balanced = bool(counts.max() > _UNBALANCED * counts.min())
    steps = _steps(found, balanced, batch_size)
    large = found.shorter_side >= _LARGE_FROM
    own_model = _PHOTOS if large else MODEL
    size = photos.SIDE if large else _side(found)
    harmless = invariance.unchanged_by(found.training)
    settings: dict[str, Any] = {
        "dataset": dataset,
        "epochs": max(math.ceil(_STEPS / steps), _FEWEST_EPOCHS),
        "rounds": _ROUNDS,
        "batch_size": batch_size,
        "balanced": balanced,
        "dense_head": True,
        "resize": size,
        "measured": True,
        "shift": round(_SHIFT * (size or found.shorter_side)),
        "flip": harmless["flip"],
        "rotation": 15.0,
        "zoom": (0.8, 1.25),
        "fill": "edge",
        "brightness": (0.7, 1.3),
        "contrast": (0.7, 1.3),
        "recolour": _RECOLOURED if harmless["recolour"] else 0.0,
    }
    if model not in (None, MODEL, _PHOTOS):
        return small_images.with_losses(Config(**settings), model)
    return dataclasses.replace(
        photos.rem_settings(figures.get_config()), model=own_model, **settings
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
    steps = _steps(found, config.balanced, config.batch_size)
    text = (
        f"{text}; {config.epochs} epochs (--epochs) of about {steps:,} steps "
        f"of {config.batch_size} (--batch-size) for {config.model} (--model)"
    )
    if config.rounds > 1:
        text += (
            f"; the baseline gets up to {config.rounds} times as many while "
            "validation pictures gain by them (--rounds)"
        )
    changes = [
        text
        for done, text in (
            (config.flip, "mirrored (--no-flip)"),
            (config.recolour, "recoloured (--recolour 0)"),
        )
        if done
    ]
    if changes:
        text += (
            f"; in training some are {' and '.join(changes)}, as that seems to "
            "change no class"
        )
    if config.balanced:
        text += "; those of rare classes are seen more often (--no-balanced)"
    return text


def _counts(found: own.Survey) -> NDArray[np.intp]:
    labels = [picture.label for picture in found.pictures]
    return np.unique(labels, return_counts=True)[1]


def _steps(found: own.Survey, balanced: bool, batch_size: int) -> int:
    """Returns about how many steps an epoch has."""
    counts = _counts(found)
    # A rare class is seen as often as the most frequent one.
    seen = len(counts) * counts.max() if balanced else counts.sum()
    return math.ceil(len(found.training) * seen / counts.sum() / batch_size)


def _side(found: own.Survey) -> int | None:
    if found.is_square and found.shorter_side <= _LARGEST:
        return None
    return _SIDE

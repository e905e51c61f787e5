"""The settings of a run where flags say nothing else.

Those of a user's own pictures follow from how many and how large they are:

python training/run.py --rem --dataset photos/

The budget is counted in steps, and not in passes over pictures, of which there
may be few. Pruning and the ramps of losses are shares of it.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training import presets
from training.configs import Config
from training.datasets import own

MODEL = "parts_capsnet_pictures"
# That of large pictures.
_PHOTOS = "parts_capsnet_photos_unshared"
_STEPS = 2200
_FEWEST_EPOCHS = 8
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


def load(
    dataset: str, model: str | None = None, backbone: str | None = None
) -> Config:
    """Returns the settings of `--dataset`, `--model` and `--backbone`.

    Preparation and augmentation are those of the data set's protocol, or follow
    from the pictures of a folder.
    """
    names_parts = model in (None, presets.CONSTELLATION)
    if backbone is not None and names_parts:
        return presets.on_backbone(load(dataset))
    if dataset in presets.PARTS and not names_parts:
        return Config(dataset=dataset, **presets.FIGURES)
    if dataset in presets.PARTS:
        return presets.constellation(Config(dataset=dataset))
    if dataset == "digits" and model != presets.CONSTELLATION:
        return presets.digits()
    if dataset in presets.PHOTO_EPOCHS and model in (None, presets.PHOTOS):
        return presets.photos(dataset)
    found = of_pictures(dataset, model) if dataset else None
    if model == presets.CONSTELLATION:
        return presets.constellation(found or Config(dataset=dataset))
    config = Config(dataset=dataset, **presets.protocol(dataset))
    return found or presets.with_losses(config, model)


def of_pictures(dataset: str, model: str | None = None) -> Config | None:
    """Returns the settings for a folder or a CSV file of pictures.

    They are `None` without pictures, or of such that are too small for parts.
    Only the network that is chosen here gets losses that need positions.
    """
    found = own.survey(Path(dataset))
    if found is None:
        return None
    # The median over images.
    side = int(np.median([min(size) for size in found.sizes]))
    if side < _SMALLEST:
        return None
    batch_size = next(b for most, b in _BATCHES if len(found.training) < most)
    counts = _counts(found)
    balanced = bool(counts.max() > _UNBALANCED * counts.min())
    steps = _steps(found, balanced, batch_size)
    large = side >= _LARGE_FROM
    own_model = _PHOTOS if large else MODEL
    fits = set(found.sizes) == {(side, side)} and side <= _LARGEST
    size = presets.PHOTO_SIDE if large else None if fits else _SIDE
    settings: dict[str, Any] = {
        "dataset": dataset,
        "epochs": max(math.ceil(_STEPS / steps), _FEWEST_EPOCHS),
        "batch_size": batch_size,
        "balanced": balanced,
        "resize": size,
        "shift": round(_SHIFT * (size or side)),
        "flip": True,
        "rotation": 15.0,
        **presets.ANY_VIEW,
    }
    if model not in (None, MODEL, _PHOTOS):
        return presets.with_losses(Config(**settings), model)
    return Config(**(presets.PICTURES | settings | {"model": own_model}))


def about_pictures(config: Config) -> str | None:
    """Returns a line of what is done with a user's pictures, and why."""
    found = own.survey(Path(config.dataset))
    if found is None:
        return None
    sides = np.array(found.sizes)
    low, high = sides.min(), sides.max()
    of = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    size = config.resize
    resized = "" if size is None else f", resized to {size}x{size} (--resize)"
    steps = _steps(found, config.balanced, config.batch_size)
    clauses = [
        f"{len(sides):,}, sides of {of} pixels{resized}",
        f"{config.epochs} epochs (--epochs) of about {steps:,} steps of "
        f"{config.batch_size} (--batch-size) for {config.model} (--model)",
    ]
    if config.flip:
        clauses.append(
            "in training half are mirrored (--no-flip where sides tell classes)"
        )
    if config.balanced:
        clauses.append(
            "those of rare classes are seen more often (--no-balanced)"
        )
    return "; ".join(clauses)


def _counts(found: own.Survey) -> NDArray[np.intp]:
    labels = [picture.label for picture in found.pictures]
    return np.unique(labels, return_counts=True)[1]


def _steps(found: own.Survey, balanced: bool, batch_size: int) -> int:
    """Returns about how many steps an epoch has."""
    counts = _counts(found)
    # A rare class is seen as often as the most frequent one.
    seen = len(counts) * counts.max() if balanced else counts.sum()
    return math.ceil(len(found.training) * seen / counts.sum() / batch_size)

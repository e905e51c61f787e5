"""The settings of a run where flags say nothing else.

Those of a user's own pictures follow from how many and how large they are:

python training/run.py --rem --dataset photos/

The budget is counted in steps, and not in passes over pictures, of which there
may be few. Pruning and the ramps of losses are shares of it.
"""

import dataclasses
import math
from pathlib import Path

import numpy as np

from training import recipes
from training.configs import Config
from training.datasets import own

SMALL, CONSTELLATION = "dr_capsnet_small", "constellation_capsnet"
# Of a user's pictures, and of large ones.
PICTURES, PHOTOS = "parts_capsnet_pictures", "parts_capsnet_photos_unshared"
_PLAN = "body_plan_capsnet"
# Of photos that have a name.
_NAMED_PHOTOS = "parts_capsnet_photos"
# Data sets whose default network names parts. It is told neither kinds, nor how
# many there are, nor places.
_PARTS = ("figures", "figures_of_four", "figures_repeated")
STEPS = 2200  # of a training on a user's own pictures
_FEWEST_EPOCHS = 8
# Images in a step, for training sets below so many images.
_BATCHES = ((600, 16), (3000, 32), (math.inf, 64))
# Sides of images that the network takes as they are, in pixels.
_SMALLEST, _LARGEST = 16, 64
# Sides of those that are resized: small ones, photos, which are twice the
# windows of their network, and photos for a backbone.
_SIDE, _PHOTO_SIDE, _BACKBONE_SIDE = 32, 64, 128
# From here on they are photos.
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
    config = Config(dataset=dataset)
    if backbone is not None and model is None:
        # Large photos can be seen through windows.
        large = load(dataset).resize == _PHOTO_SIDE
        model = _PLAN if large else CONSTELLATION
    names_parts = model in (None, CONSTELLATION)
    is_plan = model == _PLAN
    if is_plan or (backbone is not None and names_parts):
        images = load(dataset)
        return dataclasses.replace(
            recipes.applied("plan" if is_plan else "backbone", config),
            balanced=images.balanced and not is_plan,
            resize=images.resize and _BACKBONE_SIDE,
        )
    if dataset in _PARTS:
        name = "constellation" if names_parts else "parts"
        return recipes.applied(name, config)
    if dataset == "digits" and model != CONSTELLATION:
        return recipes.applied("digits", config)
    epochs = recipes.PHOTO_EPOCHS.get(dataset)
    if epochs is not None and model in (None, _NAMED_PHOTOS):
        config = recipes.applied("photos", recipes.applied("any_view", config))
        return dataclasses.replace(config, epochs=epochs, resize=_PHOTO_SIDE)
    of_folder = of_pictures(dataset, model) if dataset else None
    if model == CONSTELLATION:
        return recipes.applied("constellation", of_folder or config)
    config = of_folder or recipes.prepared(config)
    if of_folder is None and model in (None, SMALL):
        config = recipes.applied("trees", config)
    return config


def of_pictures(dataset: str, model: str | None = None) -> Config | None:
    """Returns the settings for a folder of pictures.

    They are `None` without pictures, or of such that are too small for parts.
    Only the network that is chosen here gets losses that need positions.
    """
    survey = own.survey(Path(dataset))
    if survey is None:
        return None
    side = int(np.median(survey.sizes.min(axis=1)))
    if side < _SMALLEST:
        return None
    batch_size = next(b for most, b in _BATCHES if survey.training < most)
    balanced = survey.counts.max() > _UNBALANCED * survey.counts.min()
    large = side >= _LARGE_FROM
    fits = bool((survey.sizes == side).all()) and side <= _LARGEST
    size = _PHOTO_SIDE if large else None if fits else _SIDE
    config = Config(dataset=dataset, balanced=bool(balanced))
    if model in (None, PICTURES, PHOTOS):
        config = recipes.applied("pictures", config)
        config = dataclasses.replace(
            config, model=PHOTOS if large else PICTURES
        )
    elif model == SMALL:
        config = recipes.applied("trees", config)
    return dataclasses.replace(
        recipes.applied("any_view", config),
        epochs=max(
            math.ceil(STEPS / survey.steps(config.balanced, batch_size)),
            _FEWEST_EPOCHS,
        ),
        batch_size=batch_size,
        resize=size,
        shift=round(_SHIFT * (size or side)),
        flip=True,
        rotation=15.0,
    )


def about_pictures(config: Config) -> str | None:
    """Returns a line of what is done with a user's pictures, and why."""
    survey = own.survey(Path(config.dataset))
    if survey is None:
        return None
    low, high = survey.sizes.min(), survey.sizes.max()
    of = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    size = config.resize
    resized = "" if size is None else f", resized to {size}x{size} (--resize)"
    steps = survey.steps(config.balanced, config.batch_size)
    passes = "epoch" if config.epochs == 1 else "epochs"
    text = (
        f"{len(survey.sizes):,}, sides of {of} pixels{resized}; "
        f"{config.epochs} {passes} (--epochs) of about {steps:,} steps of "
        f"{config.batch_size} (--batch-size) for {config.model} (--model)"
    )
    if config.flip:
        text += "; in training half are mirrored (--no-flip where sides tell "
        text += "classes)"
    if config.balanced:
        text += "; those of rare classes are seen more often (--no-balanced)"
    return text

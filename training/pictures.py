"""Settings for a user's own pictures, by how many and how large.

python training/run.py --rem --dataset photos/

The budget is counted in steps, and not in passes over pictures, of which there
may be few. Pruning and the ramps of losses are shares of it.
"""

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cli import UserError, check_installed
from training import images as pixels
from training import presets
from training.augmentation import recoloured
from training.configs import Config
from training.datasets import own
from training.datasets.own import Picture
from training.image_data import Floats, Images

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
_THUMBNAIL = 16
# Most pictures that are looked at.
_MOST_SEEN = 300
_FOLDS = 5
# Standard deviations of chance beyond which a change matters.
_CLEAR = 2.0

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
    harmless = unchanged_by(found.training)
    settings: dict[str, Any] = {
        "dataset": dataset,
        "epochs": max(math.ceil(_STEPS / steps), _FEWEST_EPOCHS),
        "batch_size": batch_size,
        "balanced": balanced,
        "dense_head": True,
        "resize": size,
        "shift": round(_SHIFT * (size or side)),
        "flip": harmless["flip"],
        "rotation": 15.0,
        "recolour": _RECOLOURED if harmless["recolour"] else 0.0,
        **presets.ANY_VIEW,
    }
    if model not in (None, MODEL, _PHOTOS):
        return presets.with_losses(Config(**settings), model)
    return dataclasses.replace(presets.milder(), model=own_model, **settings)


def about(config: Config) -> str | None:
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
    changes = ["mirrored (--no-flip)"] * config.flip
    changes += ["recoloured (--recolour 0)"] * bool(config.recolour)
    if changes:
        clauses.append(
            f"in training some are {' and '.join(changes)}, as that seems to "
            "change no class"
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


def unchanged_by(pictures: Sequence[Picture]) -> dict[str, bool]:
    """Tells for `flip` and `recolour` whether classes seem to stay.

    A letter that is mirrored may be another one, and a red apple is no green
    one. A simple classifier learns the classes from thumbnails, and is asked
    again with changed ones: if it is right for clearly fewer, the change
    matters. Where it cannot tell the classes, nothing seems to matter.

    Args:
        pictures: Those that cannot be read are left out.
    """
    check_installed(data="sklearn")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    draw = np.random.default_rng(0)
    thumbnails, known = [], []
    for index in draw.permutation(len(pictures))[:_MOST_SEEN]:
        with contextlib.suppress(UserError):
            file = pictures[index].file
            thumbnails.append(pixels.read(file, "RGB", _THUMBNAIL))
            known.append(pictures[index].label)
    shape = (-1, _THUMBNAIL, _THUMBNAIL, 3)
    images = Images(np.array(thumbnails, np.uint8).reshape(shape))[:]
    labels = np.array(known)
    changed = {
        "flip": _features(images[:, :, ::-1]),
        "recolour": _features(recoloured(images, 1.0, draw)),
    }
    unchanged = _features(images)
    parts = draw.permutation(len(labels)) % _FOLDS
    lost, won = dict.fromkeys(changed, 0), dict.fromkeys(changed, 0)
    for fold in range(_FOLDS):
        train, test = parts != fold, parts == fold
        if len(np.unique(labels[train])) < 2 or not test.any():
            continue
        classifier = make_pipeline(
            StandardScaler(), LogisticRegression(C=0.1, max_iter=500)
        ).fit(unchanged[train], labels[train])
        right = classifier.predict(unchanged[test]) == labels[test]
        for name, features in changed.items():
            still = classifier.predict(features[test]) == labels[test]
            lost[name] += int(np.sum(right & ~still))
            won[name] += int(np.sum(still & ~right))
    # McNemar's test.
    return {
        name: lost[name] - won[name]
        <= _CLEAR * math.sqrt(lost[name] + won[name])
        for name in changed
    }


def _features(images: Floats) -> Floats:
    """Returns colours, and shapes whatever their colours, to learn from."""
    count, side = len(images), _THUMBNAIL // 2
    grey = images.mean(axis=-1)
    shape = np.abs(grey - np.median(grey, axis=(1, 2), keepdims=True))
    shape = shape.reshape(count, side, 2, side, 2).mean(axis=(2, 4))
    shape /= shape.mean(axis=(1, 2), keepdims=True) + 1e-3
    colours = [images.mean(axis=(1, 2)), images.std(axis=(1, 2))]
    return np.concatenate([*colours, shape.reshape(count, -1)], axis=1)

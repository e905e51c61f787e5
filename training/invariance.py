"""Finds changes of pictures that leave their classes as they are.

A letter that is mirrored may be another one, and a red apple is no green one. A
simple classifier learns the classes from thumbnails, and is asked again with
changed ones: if it is right for clearly fewer, the change matters.
"""

import contextlib
from collections.abc import Callable, Sequence

import numpy as np

from cli import UserError, check_installed
from training import images as pixels
from training.augmentation import recoloured
from training.datasets.listing import Picture
from training.image_data import Array, Floats, Images

_SIDE = 16
# Most pictures that are looked at.
_MOST = 300
_FOLDS = 5
# Standard deviations of chance beyond which a change matters.
_CLEAR = 2.0


def unchanged_by(pictures: Sequence[Picture]) -> dict[str, bool]:
    """Returns for `flip` and `recolour` whether classes seem to stay.

    Where the classifier cannot tell the classes, nothing seems to matter.

    Args:
        pictures: Those that cannot be read are left out.
    """
    draw = np.random.default_rng(0)
    thumbnails, classes = [], []
    for index in draw.permutation(len(pictures))[:_MOST]:
        with contextlib.suppress(UserError):
            file = pictures[index].file
            thumbnails.append(pixels.read(file, "RGB", _SIDE))
            classes.append(pictures[index].label)
    shown = np.array(thumbnails, np.uint8).reshape(-1, _SIDE, _SIDE, 3)
    known = np.array(classes)
    changes: dict[str, Callable[[Floats], Floats]] = {
        "flip": lambda images: images[:, :, ::-1],
        "recolour": lambda images: recoloured(images, 1.0, draw),
    }
    return {
        name: not _matters(change, Images(shown)[:], known, draw)
        for name, change in changes.items()
    }


def _matters(
    change: Callable[[Floats], Floats],
    images: Floats,
    labels: Array,
    draw: np.random.Generator,
) -> bool:
    """Compares how many are right before and after (McNemar's test)."""
    check_installed(data="sklearn")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    unchanged, changed = _features(images), _features(change(images))
    parts = draw.permutation(len(labels)) % _FOLDS
    lost = won = 0
    for fold in range(_FOLDS):
        train, test = parts != fold, parts == fold
        if len(np.unique(labels[train])) < 2 or not test.any():
            continue
        classifier = make_pipeline(
            StandardScaler(), LogisticRegression(C=0.1, max_iter=500)
        ).fit(unchanged[train], labels[train])
        right, still = (
            classifier.predict(x[test]) == labels[test]
            for x in (unchanged, changed)
        )
        lost += int(np.sum(right & ~still))
        won += int(np.sum(still & ~right))
    return lost - won > _CLEAR * np.sqrt(lost + won)


def _features(images: Floats) -> Floats:
    """Returns colours, and shapes whatever their colours."""
    count, side = len(images), _SIDE // 2
    grey = images.mean(axis=-1)
    shape = np.abs(grey - np.median(grey, axis=(1, 2), keepdims=True))
    shape = shape.reshape(count, side, 2, side, 2).mean(axis=(2, 4))
    shape /= shape.mean(axis=(1, 2), keepdims=True) + 1e-3
    colours = [images.mean(axis=(1, 2)), images.std(axis=(1, 2))]
    return np.concatenate([*colours, shape.reshape(count, -1)], axis=1)

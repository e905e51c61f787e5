"""Measures trees of a run: whether they are used, and lie on known parts."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import NDArray

from tfcaps import rem
from tfcaps.rem.evaluation.named_parts import part_stability
from tfcaps.rem.maps import pointing, relevance_mass, tree_maps
from training import summary
from training.batches import Batches, measured_at_once
from training.datasets import Data
from training.datasets.masks import Masks
from training.image_data import Split
from training.progress import progress
from training.tables import TITLES

Array = NDArray[Any]

_MOST = 2000  # test images, as for faithfulness
_NOISY = 500  # of these are looked at under noise


class OnParts(NamedTuple):
    """What `measure` returns.

    Attributes:
        trees: How much of the trees lies on the objects' own parts.
        named: Whether the types of leaves name the parts under them.
        maps: Whether the map of the predicted class lies on the object, or at
            most two pixels beside it: `relevance_mass` and `pointing`, means
            over images, and as the control `relevance_mass_uniform`, that of a
            map that is the same everywhere.
    """

    trees: rem.TreesOnParts | None = None
    named: rem.NamedParts | None = None
    maps: Mapping[str, float] = {}


def measure(model: keras.Model, data: Data) -> OnParts:
    """Measures what the trees and maps of a model have to do with known parts.

    Trees are those of the first 2,000 test images at most, with couplings as
    they are; a child counts with its coupling times its activation. In images
    of several objects the parts are those of the predicted class, and the other
    objects are loose; images with no object of that class are left out.

    Returns:
        `named` of the types alone if the data have no masks or no image a part,
        and nothing if the children have no positions or there is no image.
    """
    images = data.test.images[:_MOST]
    if not len(images):
        return OnParts()
    few = measured_at_once(model)
    trees = rem.trees(model, images, couplings=False, batch_size=few)
    if not trees.has_places:
        return OnParts()
    if data.masks is None:
        return OnParts(named=rem.named_parts(trees))
    masks, predicted = data.masks[:_MOST], trees.predicted
    own, loose = _of_class(masks, predicted, masks.parts, masks.loose, False)
    there: Any = own.any(axis=(1, 2, 3))
    if not there.any():
        return OnParts(named=rem.named_parts(trees))
    own, loose, masks = own[there], loose[there], masks[there]
    known, images = trees[there], images[there]
    on_parts = rem.trees_on_parts(known, own, loose)
    several = masks.of_classes is not None
    objects = own.any(axis=1) if several else masks.object
    drawn = tree_maps(known, rem.receptive_fields(model))
    even = relevance_mass(np.ones_like(drawn), objects)
    maps = {
        "relevance_mass": float(np.mean(relevance_mass(drawn, objects))),
        "pointing": float(np.mean(pointing(drawn, objects))),
        "relevance_mass_uniform": float(np.mean(even)),
    }
    kinds: Any = (None, None)
    if masks.centres is not None and masks.loose_centres is not None:
        at, others = masks.centres, masks.loose_centres
        own, loose = _of_class(masks, known.predicted, at, others, np.nan)
    if masks.kinds is not None and masks.loose_kinds is not None:
        of, others = masks.kinds, masks.loose_kinds
        kinds = _of_class(masks, known.predicted, of, others, -1)
    names = None if kinds[0] is None else masks.kind_names
    # Of boxes the whole, of other parts the middle.
    reach = None if masks.centres is None and names else 2.5
    named = rem.named_parts(
        known, own, loose, *kinds, kind_names=names, reach=reach
    )
    stability = part_stability(
        model, images[:_NOISY], own[:_NOISY], reach=reach, batch_size=few
    )
    named = dataclasses.replace(named, stability=stability)
    return OnParts(on_parts, named, maps)


def maps_of_pairs(model: keras.Model, data: Data) -> dict[str, float]:
    """Measures whether each digit's class looks at its own digit.

    A map of each of the two classes counts as right if its highest pixel is on
    its digit or at most two pixels beside it.

    Returns:
        Of the first 2,000 test images at most: `pointing`, the share of digits
        whose map is right; `pointing_both`, the share of images in which both
        are; `pointing_other`, the share of digits whose map would be right if
        the other digit were meant, the control. Digits overlap, so that one
        pixel may be on both. Nothing if the data have no masks or the children
        no positions.
    """
    if data.masks is None or data.masks.of_classes is None:
        return {}
    masks = data.masks[:_MOST]
    if np.prod(rem.receptive_fields(model).grid[:2]) == 1:
        return {}
    there = np.all(np.any(masks.parts, axis=(2, 3)), axis=1)
    if not there.any():
        return {}
    images, digits = data.test.images[:_MOST][there], masks.parts[there]
    classes = data.masks.of_classes[:_MOST][there]
    own, other = [], []
    for k in range(2):
        maps = rem.coupling_maps(model, images, classes[:, k])
        own.append(pointing(maps, digits[:, k]))
        other.append(pointing(maps, digits[:, 1 - k]))
    return {
        "pointing": float(np.mean(own)),
        "pointing_both": float(np.mean(np.prod(own, axis=0))),
        "pointing_other": float(np.mean(other)),
    }


def _of_class(
    masks: Masks, predicted: Array, own: Array, loose: Array, nothing: Any
) -> tuple[Array, Array]:
    """Splits facts about parts into those of a class, and of loose ones.

    Args:
        masks: They say which class each part is of.
        predicted: The class of each image, `[n]`.
        own: Something of each of `masks.parts`, `[n, parts, ...]`.
        loose: The same of `masks.loose`.
        nothing: What it is of a part that is not there.
    """
    if masks.of_classes is None:
        return own, loose
    of_class = masks.of_classes == predicted[:, None]
    of_class = of_class.reshape(*of_class.shape, *[1] * (own.ndim - 2))
    of_others = np.where(of_class, nothing, own)
    together = np.concatenate([of_others, loose], axis=1)
    return np.where(of_class, own, nothing), together


def used(name: str, model: keras.Model, split: Split) -> rem.Faithfulness:
    """Measures whether the model uses its trees, on 2,000 images at most."""
    print(f"\n{TITLES[name]}: what it does without its trees", flush=True)
    # Drawn, as images may come class by class.
    batches = Batches(*split, measured_at_once(model), seed=0)
    used = rem.faithfulness(model, batches, verbose=progress() % 2)
    print(summary.wrapped(used.verdict), flush=True)
    return used

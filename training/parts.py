"""Measures trees of a run: whether they are used, and name known parts."""

import dataclasses
from typing import Any

import keras

from tfcaps import rem
from tfcaps.rem.evaluation.named_parts import part_stability
from training import summary
from training.batches import Batches, measured_at_once
from training.datasets import Data
from training.image_data import Split
from training.progress import progress
from training.tables import TITLES

_MOST = 2000  # test images, as for faithfulness
_NOISY = 500  # of these are looked at under noise


def measure(model: keras.Model, data: Data) -> rem.NamedParts | None:
    """Measures whether the trees of a model name known parts.

    Trees are those of the first 2,000 test images at most, with couplings as
    they are.

    Returns:
        Measures of the types alone if the data have no masks or no image a
        part, and `None` if the children have no positions or there is no image.
    """
    images = data.test.images[:_MOST]
    if not len(images):
        return None
    few = measured_at_once(model)
    trees = rem.trees(model, images, couplings=False, batch_size=few)
    if not trees.has_places:
        return None
    masks = None if data.masks is None else data.masks[:_MOST]
    if masks is None or not masks.parts.any():
        return rem.named_parts(trees)
    there: Any = masks.parts.any(axis=(1, 2, 3))
    trees, images, masks = trees[there], images[there], masks[there]
    own, loose = masks.parts, masks.loose
    if masks.centres is not None and masks.loose_centres is not None:
        own, loose = masks.centres, masks.loose_centres
    names = None if masks.kinds is None else masks.kind_names
    # Of boxes the whole, of other parts the middle.
    reach = None if masks.centres is None and names else 2.5
    named = rem.named_parts(
        trees,
        own,
        loose,
        masks.kinds,
        masks.loose_kinds,
        kind_names=names,
        reach=reach,
    )
    stability = part_stability(
        model, images[:_NOISY], own[:_NOISY], reach=reach, batch_size=few
    )
    return dataclasses.replace(named, stability=stability)


def used(name: str, model: keras.Model, split: Split) -> rem.Faithfulness:
    """Measures whether the model uses its trees, on 2,000 images at most."""
    print(f"\n{TITLES[name]}: what it does without its trees", flush=True)
    # Drawn, as images may come class by class.
    batches = Batches(*split, measured_at_once(model), seed=0)
    used = rem.faithfulness(model, batches, verbose=progress() % 2)
    print(summary.wrapped(used.verdict), flush=True)
    return used

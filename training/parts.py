"""Measures trees of a run: whether they are used, and lie on known parts."""

import itertools
from dataclasses import replace
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from tfcaps import rem
from tfcaps.graphs import routed_layers
from tfcaps.layers import ClassCaps
from tfcaps.rem.evaluation.named_parts import part_stability
from tfcaps.rem.maps import pointing, relevance_mass, tree_maps
from training import summary
from training.batches import Batches
from training.datasets import Data
from training.datasets.masks import Masks
from training.image_data import Split
from training.progress import progress
from training.tables import TITLES

Array = NDArray[Any]

_MOST = 2000  # test images, as for faithfulness
_NOISY = 500  # of these are looked at under noise


def found(model: keras.Model, data: Data) -> rem.Trees | None:
    """Returns the trees of the first 2,000 test images at most.

    Their couplings with other classes are left out, to save memory. Trees are
    those of `rem.trees`, whose couplings are not quantised.

    Returns:
        `None` if there is no test image, or the children have no positions.
    """
    if not len(data.test.labels):
        return None
    trees = rem.trees(model, data.test.images[:_MOST], couplings=False)
    return trees if trees.has_places else None


def trees(
    model: keras.Model, data: Data, known: rem.Trees | None = None
) -> rem.TreesOnParts | None:
    """Measures how much of the trees lies on the objects' own parts.

    A child counts with its coupling times its activation. In images of several
    objects the parts are those of the predicted class, and the other objects
    are loose; images with no object of that class are left out.

    Args:
        model: The network.
        data: Its images and masks.
        known: What `found` returned. Defaults to `None`, not known yet.

    Returns:
        The measures of the first 2,000 test images at most, or `None` if the
        data have no masks, the children no positions, or no image a part.
    """
    if data.masks is None:
        return None
    known = found(model, data) if known is None else known
    if known is None:
        return None
    own, loose = _by_class(data.masks[:_MOST], known.predicted)
    there = own.any(axis=(1, 2, 3))
    if not there.any():
        return None
    return rem.trees_on_parts(known[there], own[there], loose[there])


def named(
    model: keras.Model, data: Data, known: rem.Trees | None = None
) -> rem.NamedParts | None:
    """Measures whether the types of leaves name the parts under them.

    Parts are those of `trees`. Without masks, only the types are measured.

    Args:
        model: The network.
        data: Its images, with masks or without.
        known: What `found` returned. Defaults to `None`, not known yet.

    Returns:
        The measures of the first 2,000 test images at most, or `None` if the
        children have no positions.
    """
    known = found(model, data) if known is None else known
    if known is None:
        return None
    masks = None if data.masks is None else data.masks[:_MOST]
    there: Any = np.zeros(len(known), bool)
    if masks is not None:
        own, loose = _by_class(masks, known.predicted)
        there = own.any(axis=(1, 2, 3))
    if masks is None or not there.any():
        return rem.named_parts(known)
    if masks.centres is not None and masks.loose_centres is not None:
        own, loose = _of_class(
            masks, known.predicted, masks.centres, masks.loose_centres, np.nan
        )
    kinds = loose_kinds = None
    if masks.kinds is not None and masks.loose_kinds is not None:
        kinds, loose_kinds = (
            each[there]
            for each in _of_class(
                masks, known.predicted, masks.kinds, masks.loose_kinds, -1
            )
        )
    measured = rem.named_parts(
        known[there],
        own[there],
        loose[there],
        kinds,
        loose_kinds,
        kind_names=masks.kind_names if kinds is not None else None,
    )
    few = np.flatnonzero(there)[:_NOISY]
    stability = part_stability(model, data.test.images[:_MOST][few], own[few])
    return replace(measured, stability=stability)


def maps(
    model: keras.Model, data: Data, known: rem.Trees | None = None
) -> dict[str, float]:
    """Measures whether the map of the predicted class lies on the object.

    On it, or at most two pixels beside it; of several objects on that of the
    class, and images without one are left out.

    Args:
        model: The network.
        data: Its images and masks.
        known: What `found` returned. Defaults to `None`, not known yet.

    Returns:
        Of the first 2,000 test images at most: `relevance_mass` and `pointing`,
        means over images, and as the control `relevance_mass_uniform`, that of
        a map that is the same everywhere. Nothing if the data have no masks,
        the children no positions, or no image an object.
    """
    placed = _placed(model, data)
    if placed is None:
        return {}
    fields, masks = placed
    known = found(model, data) if known is None else known
    if known is None:
        return {}
    objects = masks.object
    if masks.of_classes is not None:
        own, _ = _by_class(masks, known.predicted)
        objects = np.any(own, axis=1)
    there = np.any(objects, axis=(1, 2))
    if not there.any():
        return {}
    drawn, objects = tree_maps(known, fields)[there], objects[there]
    means = {
        "relevance_mass": relevance_mass(drawn, objects),
        "pointing": pointing(drawn, objects),
        "relevance_mass_uniform": relevance_mass(np.ones_like(drawn), objects),
    }
    return {name: float(np.mean(values)) for name, values in means.items()}


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
    placed = _placed(model, data)
    if placed is None:
        return {}
    _, masks = placed
    if masks.of_classes is None:
        return {}
    there = np.all(np.any(masks.parts, axis=(2, 3)), axis=1)
    if not there.any():
        return {}
    images, digits = data.test.images[:_MOST][there], masks.parts[there]
    classes = masks.of_classes[there]
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


def sentence(measured: rem.TreesOnParts) -> str:
    """Returns the sentence that is printed of a model."""
    if measured.own is None:
        return "No tree has an active child that could lie on a part."
    return (
        f"{measured.own:.1%} of the trees' weight is on the objects' own parts "
        f"(of all children {measured.own_of_all:.1%}, of all activations "
        f"{measured.own_of_active:.1%}), {measured.loose:.1%} on loose parts "
        f"(of all children {measured.loose_of_all:.1%}, of all activations "
        f"{measured.loose_of_active:.1%}), {measured.nothing:.1%} on nothing; "
        f"{measured.parts_found:.1%} of the parts have a child in the tree."
    )


def _placed(
    model: keras.Model, data: Data
) -> tuple[rem.ReceptiveFields, Masks] | None:
    """Returns the fields of children and the masks, if both are known.

    The masks are those of the images that are measured.
    """
    if data.masks is None or not len(data.test.labels):
        return None
    fields = rem.receptive_fields(model)
    rows, columns, _ = fields.grid
    if rows * columns == 1:
        return None
    return fields, data.masks[:_MOST]


def _by_class(masks: Masks, predicted: Array) -> tuple[Array, Array]:
    """Returns the masks of the predicted class's parts, and of loose ones."""
    return _of_class(masks, predicted, masks.parts, masks.loose, False)


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


def used(
    name: str, model: keras.Model, split: Split
) -> tuple[rem.Faithfulness, dict[str, dict[str, Any]]]:
    """Measures whether the model uses its trees, on 2,000 images at most.

    Returns:
        What holds of trees of the class capsules and their children; and, of a
        network with several fully connected layers, what holds of trees that
        go on to the children of each of the others, by its name.
    """
    print(f"\n{TITLES[name]}: what it does without its trees", flush=True)
    of_classes = _faithfulness(model, split)
    deeper = {}
    for layer in _layers_below(model):
        print(
            f"\n{TITLES[name]}: the same of trees down to the children of "
            f"{layer}",
            flush=True,
        )
        deeper[layer] = _faithfulness(model, split, layer).to_dict()
    return of_classes, deeper


def _faithfulness(
    model: keras.Model, split: Split, layer: str | None = None
) -> rem.Faithfulness:
    # Drawn, as images may come class by class.
    batches = Batches(*split, batch_size=256, seed=0)
    used = rem.faithfulness(model, batches, layer=layer, verbose=progress() % 2)
    print(summary.wrapped(used.verdict), flush=True)
    return used


def _layers_below(model: keras.Model) -> list[str]:
    """Returns the fully connected layers below the class capsules, downwards.

    Trees cannot go on below windows, whose children differ from place to place.
    """
    connected = itertools.takewhile(
        lambda layer: isinstance(layer, ClassCaps),
        reversed(routed_layers(model)[:-1]),
    )
    return [layer.name for layer in connected]

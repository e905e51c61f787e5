"""Test images of a run, right and wrong ones, with their trees."""

from collections import Counter
from collections.abc import Mapping, Sequence

import keras
import numpy as np

from tfcaps import rem, viz
from training.batches import Batches
from training.configs import Config
from training.datasets import Data
from training.figures import Shown
from training.image_data import Array, Split
from training.tables import TITLES

# Images that are shown of those that are right, and of those that are wrong.
_EACH = 4
# Most test images that they are drawn from.
_MOST = 2000
# Classes in a title.
_LONGEST = 3

_TEXT = (
    "Test images and their parse trees: the class that the network names, and "
    "below it what the children of the tree see of the image. These are the "
    "children that are coupled with the class by more than the uniform "
    "coupling, the strongest first, by coupling times activation. A line is as "
    "strong as the coupling (the number, quantised), and the frames on the "
    "image show where the parts are. Over an image is what it is; over its "
    "tree are the longest classes with their lengths, from 0 to 1. "
)
_CELLS = (
    " Its children see the whole image, or nearly so; each is shown by the "
    "cell of the image at its place."
)
_NO_PARTS = (
    " In this network there are no parts to show: its children see all the "
    "same, or the whole image."
)


def of_models(
    models: Mapping[str, keras.Model], config: Config, data: Data
) -> dict[str, Shown]:
    """Returns the figure of the last model.

    Right ones come first. Of each kind every class comes before one comes
    twice; wrong ones that the network is most certain of come first.
    """
    name, model = list(models.items())[-1]
    images, labels = drawn(data, _MOST)
    trees = rem.trees(
        model,
        Batches(images, labels, batch_size=256),
        config.levels,
        mode=config.mode,
        couplings=False,
    )
    lengths = trees.lengths
    right = is_right(lengths, labels)
    rows = choose(right, classes(labels), lengths.max(axis=-1))
    fields = rem.receptive_fields(model)
    drawing = viz.tree_fields(
        images[rows],
        trees[rows],
        fields,
        labels=classes(labels)[rows],
        titles=[
            f"{'right' if right[k] else 'WRONG'}: "
            + longest(lengths[k], data.class_names)
            for k in rows
        ],
        class_names=data.class_names,
    )
    for shown, k in zip(drawing.data["images"], rows, strict=True):
        shown["right"] = bool(right[k])
        shown["lengths"] = lengths[k].round(6).tolist()
    text = _TEXT + _told(right)
    if not fields.is_local:
        text += _NO_PARTS if min(fields.grid[:2]) == 1 else _CELLS
    heading = f"Right and wrong images, and their trees, {TITLES[name]}"
    return {"tree_fields": Shown(drawing, heading, text)}


def longest(lengths: Array, names: Sequence[str]) -> str:
    """Returns the longest classes with their lengths, in words."""
    order = np.argsort(-lengths, kind="stable")[:_LONGEST]
    return ", ".join(f"{names[j]} {lengths[j]:.2f}" for j in order)


def choose(right: Array, classes: Array, lengths: Array) -> Array:
    """Returns which images are shown, the right ones first.

    Args:
        right: Whether each is right, `[n]`.
        classes: What each is, `[n]`.
        lengths: The length of the class that each is taken for, `[n]`.
    """
    any_order = np.random.default_rng(0).permutation(len(right))
    certain = np.argsort(-lengths, kind="stable")
    return np.concatenate(
        [
            spread(any_order[right[any_order]], classes, _EACH),
            spread(certain[~right[certain]], classes, _EACH),
        ]
    )


def spread(order: Array, classes: Array, most: int) -> Array:
    """Returns the first in an order, every class before one comes twice.

    Args:
        order: Images in their order, `[m]`.
        classes: What each is, `[n]`.
        most: Int. How many are returned.
    """
    seen: Counter[int] = Counter()
    rounds = []
    for k in order:
        rounds.append(seen[classes[k]])
        seen[classes[k]] += 1
    return order[np.argsort(rounds, kind="stable")][:most]


def drawn(data: Data, most: int) -> Split:
    """Returns `most` of the test images, all if they are fewer."""
    count = len(data.test.labels)
    chosen = np.random.default_rng(0).permutation(count)[:most]
    return data.test.take(np.sort(chosen))


def classes(labels: Array) -> Array:
    """Returns one class for each image; of two the lower one."""
    return np.argmax(labels, axis=-1) if labels.ndim == 2 else labels


def is_right(lengths: Array, labels: Array) -> Array:
    """Tells whether the longest class is that of the image, or one of them."""
    named = np.argmax(lengths, axis=-1)
    if labels.ndim == 2:
        return labels[np.arange(len(named)), named].astype(bool)
    return named == labels


def _told(right: Array) -> str:
    """Says how many are right."""
    count, wrong = len(right), int(np.sum(~right))
    if not wrong:
        return f"None of the {count:,} test images looked at is wrong."
    text = f"{wrong:,} of the {count:,} test images looked at are wrong"
    if wrong == count:
        return f"All {text}."
    return (
        f"{text}; of these the ones that the network is most certain of are "
        "shown, of the others some that are drawn at random."
    )

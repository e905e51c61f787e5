"""Test images of a run with their trees, and what their parts are called."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

import keras
import numpy as np

from cli import UserError
from tfcaps import rem, viz
from training.batches import Batches
from training.configs import Config
from training.datasets import Data
from training.figures import Shown
from training.folder import RunFolder
from training.image_data import Array, Floats, Split
from training.tables import TITLES

# Images that are shown of those that are right, and of those that are wrong.
_EACH = 4
# Most test images that they are drawn from.
_DRAWN = 2000
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
# Test images that are shown.
_SHOWN = 2
# Most test images that these, and what types look like, are taken from; and
# most numbers in them, 128 MB.
_MOST, _NUMBERS = 500, 2**25
# As in `viz.named_tree`.
_ACTIVE = 0.1

NAMED = (
    "Filled points on the image are the capsules of its parse tree, with the "
    "names of their types; hollow ones are active capsules outside of it. "
    "Beside it are the places of the class's parts in the weights of the "
    "network, and the mean of what each type lies on in test images. Below are "
    "the longest classes, from 0 to 1, of the image as it is, with the tree "
    "silenced, and with all other capsules silenced."
)
NAMES = "names.json"


def right_and_wrong(
    models: Mapping[str, keras.Model], config: Config, data: Data
) -> dict[str, Shown]:
    """Returns the figure of the last model.

    Right ones come first. Of each kind every class comes before one comes
    twice; wrong ones that the network is most certain of come first.
    """
    name, model = list(models.items())[-1]
    images, labels = drawn(data, _DRAWN)
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
    """Chooses the images that are shown, the right ones first.

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


def named(
    models: Mapping[str, keras.Model],
    folder: RunFolder,
    data: Data,
    kinds: Sequence[str | None] | None = None,
) -> dict[str, Shown]:
    """Returns pictures of two test images that the last model names rightly.

    It also keeps what the types look like, for `training/explain.py`.

    Args:
        models: The models by name.
        folder: The run.
        data: Its images.
        kinds: Kinds of the types, as in `type_names.names`.

    Returns:
        Nothing if the children have no places, or there is no test image.
    """
    model = list(models.values())[-1]
    most = min(_MOST, max(1, _NUMBERS // int(np.prod(data.image_shape))))
    pictures, labels = drawn(data, most)
    if not len(labels):
        return {}
    images = pictures[:]
    trees = rem.trees(model, images, couplings=False)
    if not trees.has_places:
        return {}
    parts = rem.part_pictures(images, trees)
    folder.save_parts(parts)
    rows = _telling(trees, labels)
    chosen = classes(labels)[rows]
    drawings = draw_named(
        folder,
        model,
        images[rows],
        names=names_of_types(folder, trees.num_types, kinds),
        classes=data.class_names,
        parts=parts,
        labels=[int(label) for label in chosen],
    )
    return {
        f"named_tree_{k + 1}": Shown(
            drawing,
            "One new image, and why the network names it so"
            if k == 0
            else "Another one",
            NAMED if k == 0 else "As above.",
        )
        for k, drawing in enumerate(drawings)
    }


def draw_named(
    folder: RunFolder,
    model: keras.Model,
    images: Floats,
    *,
    names: Sequence[str] | None = None,
    classes: Sequence[str],
    parts: Array | None,
    labels: Sequence[int | None] | None = None,
) -> list[viz.Drawing]:
    """Returns a picture of each image, none if the children have no places.

    Args:
        folder: The run.
        model: Its network.
        images: Images as the network takes them.
        names: Names of the types. Defaults to those that the folder knows.
        classes: Names of the classes.
        parts: What types look like, or `None`.
        labels: Class of each image, or `None`. Defaults to not known.
    """
    trees = rem.trees(model, images, couplings=False)
    if not trees.has_places:
        return []
    if names is None:
        names = names_of_types(folder, trees.num_types)
    blueprints = rem.blueprints(model)
    lengths = rem.tree_lengths(model, images, trees)
    given = [None] * len(trees) if labels is None else labels
    return [
        viz.named_tree(
            images[k],
            trees[k : k + 1],
            lengths[k],
            class_names=classes,
            type_names=names,
            blueprint=None if blueprints is None else blueprints[j],
            parts=parts,
            label=label,
        )
        for k, (j, label) in enumerate(zip(trees.predicted, given, strict=True))
    ]


def _telling(trees: rem.Trees, labels: Array) -> Array:
    """Chooses the images that are shown, of several classes.

    Those come first that are right, have a tree, and have something active
    outside of it.
    """
    right = is_right(trees.lengths, labels)
    active = trees.activations
    least = _ACTIVE * active.max(axis=1, keepdims=True)
    outside = np.any(~trees.in_tree & (active > least), axis=1)
    order = np.lexsort((~outside, trees.leaves == 0, ~right))
    return spread(order, trees.predicted, _SHOWN)


def names_of_types(
    folder: RunFolder,
    count: int,
    kinds: Sequence[str | None] | None = None,
) -> list[str]:
    """Returns the names of `count` types.

    Args:
        folder: The run.
        count: Int. How many types there are.
        kinds: For each type the kind of part on which most of its leaves lie,
            or `None`, see `NamedParts.names`. Defaults to those in `rem.json`.

    Raises:
        UserError: If `names.json` is no list of names.
    """
    kinds = _measured(folder) if kinds is None else list(kinds)
    found = [f"type {k}" for k in range(count)]
    for k, kind in enumerate(kinds[:count]):
        found[k] = kind or found[k]
    for k, name in names_by_hand(folder).items():
        if k >= count:
            raise UserError(
                f"{folder.path / NAMES} names type {k}, and the types are 0 to "
                f"{count - 1}."
            )
        found[k] = name
    return found


def names_by_hand(folder: RunFolder) -> dict[int, str]:
    """Returns the names in `names.json`, none if there is no such file.

    Raises:
        UserError: If it is no list of names.
    """
    path = folder.path / NAMES
    try:
        given = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _malformed(folder) from error
    if not isinstance(given, dict):
        raise _malformed(folder)
    for number, name in given.items():
        is_number = number.isascii() and number.isdigit()
        if not (is_number and isinstance(name, str) and name.strip()):
            raise _malformed(folder)
    return {int(number): name.strip() for number, name in given.items()}


def _malformed(folder: RunFolder) -> UserError:
    return UserError(
        f"{folder.path / NAMES} must give names of types by their numbers, "
        'such as {"0": "wheel", "3": "window"}.'
    )


def _measured(folder: RunFolder) -> list[str | None]:
    """Returns the kinds that the run measured of its last model."""
    try:
        text = (folder.path / "rem.json").read_text("utf-8")
        model = json.loads(text)["models"][folder.config.model_names[-1]]
        return list(model["named_parts"]["names"] or ())
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return []  # of an older version

"""Pictures of named trees, and what the types of capsules are called."""

import json
from collections.abc import Mapping, Sequence

import keras
import numpy as np

from cli import UserError
from tfcaps import rem, viz
from training.datasets import Data
from training.figures import Figures, drawn, is_right, one_class, spread
from training.folder import RunFolder
from training.image_data import Array, Floats

# Test images that are shown.
_SHOWN = 2
# Most test images that these, and what types look like, are taken from; and
# most numbers in them, 128 MB.
_MOST, _NUMBERS = 500, 2**25
# As in `viz.named_tree`.
_ACTIVE = 0.1

NAMES = "names.json"


def of_test_images(
    models: Mapping[str, keras.Model], folder: RunFolder, data: Data
) -> Figures:
    """Returns pictures of two test images that the last model names rightly.

    It also keeps what the types look like, for `training/explain.py`.

    Returns:
        Nothing if the children have no places, or there is no test image.
    """
    model = list(models.values())[-1]
    most = min(_MOST, max(1, _NUMBERS // int(np.prod(data.image_shape))))
    pictures, labels = drawn(data, most)
    found = Figures()
    if not len(labels):
        return found
    images = pictures[:]
    trees = rem.trees(model, images, couplings=False)
    if not trees.has_places:
        return found
    folder.save_parts(rem.part_pictures(images, trees))
    rows = _telling(trees, labels)
    known = one_class(labels)[rows].tolist()
    drawings = draw(folder, model, images[rows], data.class_names, known)
    for k, drawing in enumerate(drawings, 1):
        like = "named_tree" if k == 1 else "another_named_tree"
        found.add(f"named_tree_{k}", drawing, like)
    return found


def draw(
    folder: RunFolder,
    model: keras.Model,
    images: Floats,
    classes: Sequence[str],
    labels: Sequence[int | None],
) -> list[viz.Drawing]:
    """Returns a picture of each image, none if the children have no places."""
    trees = rem.trees(model, images, couplings=False)
    if not trees.has_places:
        return []
    names = names_of_types(folder, trees.num_types)
    blueprints = rem.blueprints(model)
    lengths = rem.tree_lengths(model, images, trees)
    return [
        viz.named_tree(
            images[k],
            trees[k : k + 1],
            lengths[k],
            class_names=classes,
            type_names=names,
            blueprint=None if blueprints is None else blueprints[j],
            parts=folder.parts(),
            label=label,
        )
        for k, (j, label) in enumerate(
            zip(trees.predicted, labels, strict=True)
        )
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


def names_of_types(folder: RunFolder, count: int) -> list[str]:
    """Returns the names of `count` types: by hand, else kinds, else numbers.

    A kind is that of the part on which most of a type's leaves lie.

    Raises:
        UserError: If `names.json` is no list of names.
    """
    try:
        text = (folder.path / "rem.json").read_text("utf-8")
        model = json.loads(text)["models"][folder.config.model_names[-1]]
        kinds = model["named_parts"]["names"] or ()
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        kinds = ()  # of an older version
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
        names = {}
        for number, name in json.loads(path.read_text("utf-8")).items():
            if not (number.isascii() and number.isdigit() and name.strip()):
                raise ValueError
            names[int(number)] = name.strip()
        return names
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(
            f"{path} must give names of types by their numbers, "
            'such as {"0": "wheel", "3": "window"}.'
        ) from error

"""Pictures of images and of the parts by which a network told their class."""

from collections.abc import Mapping, Sequence

import keras
import numpy as np

from tfcaps import rem, viz
from training import tree_figures, type_names
from training.datasets import Data
from training.figures import Shown
from training.folder import RunFolder
from training.image_data import Array, Floats

# Test images that are shown.
_SHOWN = 2
# Most test images that these, and what types look like, are taken from; and
# most numbers in them, 128 MB.
_MOST, _NUMBERS = 500, 2**25
# As in `viz.named_tree`.
_ACTIVE = 0.1

CAPTION = (
    "Filled points on the image are the capsules of its parse tree, with the "
    "names of their types; hollow ones are active capsules outside of it. "
    "Beside it are the places of the class's parts in the weights of the "
    "network, and the mean of what each type lies on in test images. Below are "
    "the longest classes, from 0 to 1, of the image as it is, with the tree "
    "silenced, and with all other capsules silenced."
)


def of_models(
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
    pictures, labels = tree_figures.drawn(data, most)
    if not len(labels):
        return {}
    images = pictures[:]
    trees = rem.trees(model, images, couplings=False)
    if not trees.has_places:
        return {}
    parts = rem.part_pictures(images, trees)
    folder.save_parts(parts)
    rows = _choose(trees, labels)
    chosen = tree_figures.classes(labels)[rows]
    drawings = draw(
        folder,
        model,
        images[rows],
        names=type_names.names(folder, trees.num_types, kinds),
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
            CAPTION if k == 0 else "As above.",
        )
        for k, drawing in enumerate(drawings)
    }


def draw(
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
        names = type_names.names(folder, trees.num_types)
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


def _choose(trees: rem.Trees, labels: Array) -> Array:
    """Returns which images are shown, of several classes.

    Those come first that are right, have a tree, and have something active
    outside of it.
    """
    right = tree_figures.is_right(trees.lengths, labels)
    active = trees.activations
    least = _ACTIVE * active.max(axis=1, keepdims=True)
    outside = np.any(~trees.in_tree & (active > least), axis=1)
    order = np.lexsort((~outside, trees.leaves == 0, ~right))
    return tree_figures.spread(order, trees.predicted, _SHOWN)

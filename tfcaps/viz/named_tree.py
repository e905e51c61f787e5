"""One image, the parts that its class was told by, and whether they matter."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from tfcaps.rem import Trees
from tfcaps.viz.drawing import Drawing, class_labels, for_json, picture
from tfcaps.viz.named_tree_panels import (
    HEIGHT,
    TOP,
    TYPES,
    WIDTH,
    Shown,
    draw_blueprint,
    draw_image,
    draw_lengths,
    draw_parts,
    write_head,
)

Array = NDArray[Any]

# Children outside a tree are shown if they exceed this share of the image's
# most active one, as in `Faithfulness.necessity_active`.
_ACTIVE = 0.1
# Pixels: of children nearer to each other one is shown.
_APART = 1.5


def named_tree(
    image: Array,
    tree: Trees,
    lengths: ArrayLike,
    *,
    class_names: Sequence[str] | None = None,
    type_names: Sequence[str] | None = None,
    blueprint: ArrayLike | None = None,
    parts: ArrayLike | None = None,
    label: int | None = None,
) -> Drawing:
    """Draws the parts of an image by which a network told its class.

    On the image are the leaves of its tree with the names of their types; lines
    lead to the place of the class, or to its name where there is no blueprint.
    Other active children are hollow. Beside it are the blueprint of the class
    and what each type looks like. Below are the longest classes as the image
    is, without its tree, and with its tree alone.

    Args:
        image: Image `[h, w, c]`, see `saliency`.
        tree: The `Trees` of this one image, such as `trees[k : k + 1]`.
        lengths: Class lengths `[3, j]` of the image, see
            `tfcaps.rem.tree_lengths`.
        class_names: Names of the classes. Defaults to their numbers.
        type_names: Names of the types. Defaults to "type 3".
        blueprint: Row and column of each type's part in the predicted class,
            `[t, 2]`, NaN where it has none; see `tfcaps.rem.blueprints`.
            Defaults to `None`, not shown.
        parts: What each type looks like, `[t, rows, columns, c]`, NaN for those
            that are not known; see `tfcaps.rem.part_pictures`. Defaults to
            `None`, not shown.
        label: Class of the image. Defaults to `None`, not known.

    Returns:
        A figure, and the same as numbers.

    Raises:
        ValueError: If there is not one tree, its children have no places, or
            there are not three rows of lengths or too few names.
    """
    if len(tree) != 1:
        raise ValueError(f"`tree` must be of one image. Received: {len(tree)}.")
    if not tree.has_places:
        raise ValueError("The children of this tree have no places to draw.")
    lengths = np.asarray(lengths, "float32")
    expected = (3, tree.lengths.shape[1])
    if lengths.shape != expected:
        raise ValueError(
            f"`lengths` must have the shape {expected}. Received: "
            f"{lengths.shape}."
        )
    classes = class_labels(class_names, lengths.shape[1])
    types = list(type_names or [f"type {k}" for k in range(tree.num_types)])
    for name, names, count in (
        ("class_names", classes, lengths.shape[1]),
        ("type_names", types, tree.num_types),
    ):
        if len(names) < count:
            raise ValueError(
                f"`{name}` must have {count} names. Received: {len(names)}."
            )
    predicted = int(tree.predicted[0])
    shown = _choose(tree)
    seen = picture(image)
    drawing = Figure(figsize=(WIDTH, HEIGHT), dpi=120)
    write_head(drawing, shown, types, classes, predicted, label)
    place = draw_image(
        drawing, seen, shown, types, blueprint, classes[predicted]
    )
    top, number = TOP, 2
    if blueprint is not None:
        high = (
            2.85
            if parts is None or len(np.asarray(parts)) <= TYPES // 2
            else 2.1
        )
        draw_blueprint(drawing, np.asarray(blueprint), types, high)
        top, number = TOP + high + 0.42, 3
    if parts is not None:
        draw_parts(drawing, np.asarray(parts), types, top, number)
    draw_lengths(drawing, seen, shown, lengths, classes, predicted)
    return Drawing(
        drawing,
        _data(
            tree, shown, seen, lengths, classes, types, blueprint, place, label
        ),
    )


def _choose(tree: Trees) -> Shown:
    """Returns the children that are drawn, the strongest first."""
    active, inside = tree.activations[0], tree.in_tree[0]
    places = tree.places[0][:, ::-1]
    strength = tree.towards[0] * active
    leaves = np.flatnonzero(inside)
    leaves = leaves[np.argsort(-strength[leaves], kind="stable")]
    least = _ACTIVE * max(float(active.max(initial=0.0)), 1e-6)
    others = np.flatnonzero(~inside & (active > least))
    outside: list[int] = []
    taken = [places[k] for k in leaves]
    for k in others[np.argsort(-active[others], kind="stable")]:
        if all(np.hypot(*(places[k] - at)) >= _APART for at in taken):
            outside.append(int(k))
            taken.append(places[k])
    return Shown(leaves, np.array(outside, int), places, tree.types)


def _data(
    tree: Trees,
    shown: Shown,
    seen: Array,
    lengths: Array,
    classes: Sequence[str],
    types: Sequence[str],
    blueprint: ArrayLike | None,
    place: Array | None,
    label: int | None,
) -> dict[str, Any]:
    def children(some: Array) -> list[dict[str, Any]]:
        return [
            {
                "child": int(k),
                "type": int(tree.types[k]),
                "name": types[tree.types[k]],
                "place": tree.places[0, k].round(3),
                "coupling": round(float(tree.towards[0, k]), 6),
                "activation": round(float(tree.activations[0, k]), 6),
            }
            for k in some
        ]

    return for_json(
        {
            "image": seen,
            "label": label,
            "predicted": tree.predicted[0],
            "class_names": list(classes),
            "type_names": list(types),
            "leaves": children(shown.leaves),
            "outside": children(shown.outside),
            "place": None if place is None else place[::-1].round(3),
            "blueprint": None if blueprint is None else np.asarray(blueprint),
            "lengths": {
                name: row.astype(float).round(6)
                for name, row in zip(
                    ("as it is", "without the tree", "tree alone"),
                    lengths,
                    strict=True,
                )
            },
        }
    )

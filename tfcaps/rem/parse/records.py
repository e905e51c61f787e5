"""The trees of images as plain data, which `json` writes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tfcaps.labels import names_of
from tfcaps.ops import Array
from tfcaps.rem.parse.receptive_fields import ReceptiveFields
from tfcaps.rem.parse.trees import Trees

# Digits of lengths and couplings, and of places in pixels.
_SHARE, _PIXEL = 4, 2


def tree_records(
    trees: Trees,
    fields: ReceptiveFields,
    *,
    class_names: Sequence[str] | None = None,
    type_names: Sequence[str] | None = None,
    blueprints: ArrayLike | None = None,
    sizes: ArrayLike | None = None,
) -> list[dict[str, Any]]:
    """Returns what the network says of each image, and why, as plain data.

    All that is in pixels is in those of the file that the image was made of,
    if its size is told. The first pixel has its centre at 0, `x` goes to the
    right and `y` down.

    Args:
        trees: What `tfcaps.rem.trees` returns.
        fields: What `tfcaps.rem.receptive_fields` returns for the model.
        class_names: Names of the classes. Defaults to their numbers.
        type_names: Names of the types. Defaults to "type 3".
        blueprints: What `tfcaps.rem.blueprints` returns for the model, `[j, t,
            2]`. Defaults to `None`, none.
        sizes: Rows and columns of the file of each image, `[n, 2]`. Defaults to
            those of the images.

    Returns:
        A dict for each image:

        - `class`, `length`, `runner_up`, `runner_up_length` and `margin`, the
            first length less the second;
        - `width` and `height` of the file;
        - `leaves`, the children in the tree, the strongest first: `child`, its
            number, `type` and `name`, `coupling`, `activation`, the `place`
            `[x, y]`, and the `box` that it sees, `[left, top, right, bottom]`
            as Pillow crops it; `None` if not known, or without pixels;
        - `boxes`, what a box is: the "receptive field" of the child, or the
            "cell" of the image at its place, see `ReceptiveFields.regions`;
        - `blueprint`, where the class has its parts: `type`, `name`, and the
            `shift` `[x, y]` from the place of the class; or `None`.

    Raises:
        ValueError: If there is not one size for each image, or too few names.
    """
    count, regions = len(trees), fields.regions
    whole = np.array(fields.image_shape, float)
    sides = np.asarray(whole if sizes is None else sizes, float)
    if sides.ndim == 1:
        sides = np.tile(sides, (count, 1))
    if sides.shape != (count, 2):
        raise ValueError(
            f"`sizes` must have the shape {(count, 2)}, a row for each image. "
            f"Received: {sides.shape}."
        )
    classes = names_of(class_names, trees.lengths.shape[1])
    types = names_of(
        type_names, trees.num_types, word="type ", argument="type_names"
    )
    kind = "cell" if regions is not fields else "receptive field"
    records = []
    for k, (j, second) in enumerate(
        zip(trees.predicted, trees.runners_up, strict=True)
    ):
        scale = sides[k] / whole
        places = (trees.places[k] + 0.5) * scale - 0.5
        corners = regions.boxes.reshape(-1, 2, 2) * scale
        # Whole pixels, none of which is lost; a hair is no pixel.
        low = np.floor(corners[:, 0] + 1e-6).clip(0, sides[k])
        high = np.ceil(corners[:, 1] - 1e-6).clip(0, sides[k])
        leaves = [
            {
                "child": int(i),
                "type": int(trees.types[i]),
                "name": types[trees.types[i]],
                "coupling": _share(trees.towards[k, i]),
                "activation": _share(trees.activations[k, i]),
                "place": _point(places[i]),
                "box": _box(low[i], high[i]),
            }
            for i in trees.strongest(k)
        ]
        blueprint = None
        if blueprints is not None:
            shifts = np.asarray(blueprints, float)[j] * scale
            blueprint = [
                {
                    "type": int(t) % len(types),
                    "name": types[t % len(types)],
                    "shift": _point(shifts[t]),
                }
                for t in np.flatnonzero(np.isfinite(shifts).all(axis=1))
            ]
        lengths, has_second = trees.lengths[k], second >= 0
        records.append(
            {
                "class": classes[j],
                "length": _share(lengths[j]),
                "runner_up": classes[second] if has_second else None,
                "runner_up_length": (
                    _share(lengths[second]) if has_second else None
                ),
                "margin": _share(trees.margins[k]),
                "width": int(sides[k, 1]),
                "height": int(sides[k, 0]),
                "boxes": kind,
                "leaves": leaves,
                "blueprint": blueprint,
            }
        )
    return records


def _share(value: float) -> float:
    return round(float(value), _SHARE)


def _point(place: Array) -> list[float] | None:
    """Returns row and column as `[x, y]`, `None` if they are not known."""
    if not np.isfinite(place).all():
        return None
    return [round(float(place[1]), _PIXEL), round(float(place[0]), _PIXEL)]


def _box(low: Array, high: Array) -> list[int] | None:
    if np.any(low >= high):
        return None
    return [int(n) for n in (*low[::-1], *high[::-1])]

"""Measures whether parse trees lie on the true parts of objects."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.rem.maps import widened
from tfcaps.rem.results import Result, lines_of

Array = NDArray[Any]
_CHUNK = 100  # images whose masks are widened at a time


@dataclasses.dataclass(frozen=True)
class TreesOnParts(Result):
    """The result of `tfcaps.rem.trees_on_parts`.

    The first three are means over the images whose tree has a child; they sum
    to 1, and are `None` if no tree has one.

    Attributes:
        own: Share of a tree's weight on the object's own parts.
        loose: Share on loose parts, which belong to no object.
        nothing: Share on neither.
        own_of_all: Share of all children that lie on the object's own parts:
            what `own` would be if every child had the same weight. Trees that
            find the object have a larger share.
        loose_of_all: Share of all children that lie on loose parts.
        own_of_active: What `own` would be if a child's weight were its
            activation, whatever it is coupled with: the share that the
            couplings must beat. `None` without `activations`.
        loose_of_active: The same of `loose`.
        parts_found: Share of the objects' parts, over all images, on which at
            least one child of the tree lies. A tree without a child finds none.
        samples: How many images were used.
        empty_trees: Share of images whose tree has no child.
        margin: By how many pixels masks were widened.
    """

    own: float | None
    loose: float | None
    nothing: float | None
    own_of_all: float
    loose_of_all: float
    parts_found: float
    samples: int
    empty_trees: float
    margin: int
    own_of_active: float | None = None
    loose_of_active: float | None = None

    def __str__(self) -> str:
        """Returns the measures as a table."""
        rows = [
            ("weight on the object's parts", self.own),
            ("weight on loose parts", self.loose),
            ("weight on nothing", self.nothing),
            ("all children on the object's parts", self.own_of_all),
            ("all children on loose parts", self.loose_of_all),
            ("parts with a child of the tree", self.parts_found),
            ("empty trees", self.empty_trees),
        ]
        if self.own_of_active is not None:
            rows[5:5] = [
                ("all activations on the object's parts", self.own_of_active),
                ("all activations on loose parts", self.loose_of_active),
            ]
        return "\n".join(
            lines_of(
                (title, "   –" if n is None else f"{n:6.1%}")
                for title, n in rows
            )
        )


def trees_on_parts(
    weights: ArrayLike,
    centres: ArrayLike,
    parts: ArrayLike,
    loose: ArrayLike | None = None,
    *,
    activations: ArrayLike | None = None,
    margin: int = 2,
) -> TreesOnParts:
    """Measures how much of parse trees lies on the true parts of objects.

    A child lies on a part if the pixel at the centre of its receptive field is
    one of the part's, or at most `margin` pixels beside it. One that lies on a
    part of the object and on a loose part counts for the object.

    Args:
        weights: How much each child counts in the tree of each image,
            `[n, i]`, such as its coupling with the class; 0 for a child that is
            not in the tree.
        centres: Row and column of the centres of receptive fields in pixels,
            the first pixel's centre at 0: of each place `[h, w, 2]`, or of each
            child `[i, 2]`, see `tfcaps.rem.receptive_fields`. Children are
            counted as in couplings: row, column, type.
        parts: Masks of the object's parts, bool `[n, parts, rows, columns]`. A
            part that an image does not have is False everywhere.
        loose: Masks of parts that belong to no object, the same; `None` for
            none. Defaults to `None`.
        activations: How active every child is, `[n, i]`, also those that are
            not in the tree, as a control. Defaults to `None`, no control.
        margin: Int, at least 0. By how many pixels masks are widened in every
            direction, also diagonally. Defaults to `2`.

    Returns:
        `TreesOnParts`.

    Raises:
        ValueError: If shapes do not fit, a weight or an activation is negative
            or not finite, or no image has a part.

    Example:

    >>> import numpy as np
    >>> parts = np.zeros((1, 1, 8, 8), bool)
    >>> parts[:, :, :3, :3] = True  # upper left
    >>> centres = [[[1, 1], [1, 6]], [[6, 1], [6, 6]]]  # 2x2 places
    >>> trees_on_parts([[0.75, 0.0, 0.25, 0.0]], centres, parts, margin=0).own
    0.75
    """
    weights = np.asarray(weights, np.float64)
    if activations is not None:
        return _with_control(
            weights, activations, centres, parts, loose, margin
        )
    places = np.asarray(centres, np.float64).reshape(-1, np.shape(centres)[-1])
    parts = np.asarray(parts)
    loose = parts[:, :0] if loose is None else np.asarray(loose)
    _check(weights, places, parts, loose, margin)
    types = weights.shape[1] // len(places)

    own_weight, loose_weight = np.zeros((2, len(weights)))
    own_children = loose_children = found = there = 0
    for start in range(0, len(weights), _CHUNK):
        some = slice(start, start + _CHUNK)
        on_part = _lies_on(parts[some], places, margin).repeat(types, axis=2)
        on_loose = _lies_on(loose[some], places, margin).repeat(types, axis=2)
        on_own = on_part.any(axis=1)
        on_other = on_loose.any(axis=1) & ~on_own
        tree = weights[some]
        own_weight[some] = np.sum(tree * on_own, axis=1)
        loose_weight[some] = np.sum(tree * on_other, axis=1)
        own_children += int(on_own.sum())
        loose_children += int(on_other.sum())
        hit = (on_part & (tree > 0.0)[:, np.newaxis]).any(axis=2)
        found += int(hit.sum())
        there += int(parts[some].any(axis=(2, 3)).sum())

    total = weights.sum(axis=1)
    grown = total > 0.0
    own = other = nothing = None
    if grown.any():
        own = float(np.mean(own_weight[grown] / total[grown]))
        other = float(np.mean(loose_weight[grown] / total[grown]))
        nothing = max(0.0, 1.0 - own - other)
    return TreesOnParts(
        own=own,
        loose=other,
        nothing=nothing,
        own_of_all=own_children / weights.size,
        loose_of_all=loose_children / weights.size,
        parts_found=found / there,
        samples=len(weights),
        empty_trees=float(np.mean(~grown)),
        margin=margin,
    )


def _with_control(
    weights: Array,
    activations: ArrayLike,
    centres: ArrayLike,
    parts: ArrayLike,
    loose: ArrayLike | None,
    margin: int,
) -> TreesOnParts:
    """Returns the measures of trees beside those of all activations."""
    active = np.asarray(activations, np.float64)
    fits = active.shape == weights.shape
    if not (fits and np.isfinite(active).all() and (active >= 0.0).all()):
        raise ValueError(
            "`activations` must have the shape of `weights`, "
            f"{weights.shape}, and be finite and at least 0. Received: "
            f"activations of the shape {active.shape}"
            + (f", the least is {active.min()}." if fits else ".")
        )
    trees = trees_on_parts(weights, centres, parts, loose, margin=margin)
    control = trees_on_parts(active, centres, parts, loose, margin=margin)
    return dataclasses.replace(
        trees, own_of_active=control.own, loose_of_active=control.loose
    )


def _lies_on(masks: Array, places: Array, margin: int) -> Array:
    """Tells which places lie on which widened masks, `[n, masks, places]`."""
    count, each, rows, columns = masks.shape
    sides = (margin, margin)  # a place may lie beyond the border
    flat = np.pad(
        masks.reshape(count * each, rows, columns), ((0, 0), sides, sides)
    )
    wide = widened(flat, margin)
    row, column = np.floor(places + 0.5).astype(np.int64).T + margin
    inside = (row >= 0) & (row < wide.shape[1])
    inside &= (column >= 0) & (column < wide.shape[2])
    on = np.zeros((count * each, len(places)), bool)
    on[:, inside] = wide[:, row[inside], column[inside]]
    return on.reshape(count, each, len(places))


def _check(
    weights: Array, places: Array, parts: Array, loose: Array, margin: int
) -> None:
    if weights.ndim != 2 or 0 in weights.shape:
        raise ValueError(
            "`weights` must have the shape [n, children], of one image and one "
            f"child at least. Received: {weights.shape}."
        )
    if not (np.isfinite(weights).all() and (weights >= 0.0).all()):
        raise ValueError(
            "`weights` must be finite and at least 0. Received: some that are "
            f"not, the least is {weights.min()}."
        )
    if places.shape[1] != 2 or weights.shape[1] % len(places):
        raise ValueError(
            "`centres` must be rows and columns, [h, w, 2] of places or "
            "[children, 2], and each place must have as many children. "
            f"Received: {len(places)} centres of {places.shape[1]} numbers for "
            f"{weights.shape[1]} children."
        )
    for name, masks in (("parts", parts), ("loose", loose)):
        fits = masks.ndim == 4 and len(masks) == len(weights)
        if (
            masks.dtype != bool
            or not fits
            or masks.shape[2:] != parts.shape[2:]
        ):
            raise ValueError(
                f"`{name}` must be bool of the shape [{len(weights)}, {name}, "
                "rows, columns], with the rows and columns of the images. "
                f"Received: {masks.dtype} of the shape {masks.shape}."
            )
    if not parts.any():
        raise ValueError(
            "`parts` must have at least one pixel of one part. Received: masks "
            "that are False everywhere."
        )
    if margin < 0:
        raise ValueError(f"`margin` must be at least 0. Received: {margin}.")

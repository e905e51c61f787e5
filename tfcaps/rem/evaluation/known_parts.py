"""Where the parts of images are, and which leaves lie on them."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.rem.maps.map_quality import widened
from tfcaps.rem.parse.trees import Trees

Array = NDArray[Any]

_CHUNK = 100  # images that are looked at together
_MARGIN = 2  # pixels by which masks are widened, as in `trees_on_parts`


class Leaves(NamedTuple):
    """The leaves `l` of some images, and the parts near them.

    Attributes:
        images: The images, a slice.
        image: Which of them each leaf is of, `[l]`.
        child: Which child it is, `[l]`.
        distances: To the centres of all parts, `[l, parts]`; NaN to those that
            are not there.
        on: Which parts it lies on, bool `[l, parts]`.
    """

    images: slice
    image: Array
    child: Array
    distances: Array
    on: Array


class KnownParts:
    """Where the parts of images are, the object's before the loose ones.

    Attributes:
        there: Which parts an image has, `[n, parts]`.
        num_own: Int. How many of them are the object's.
        reach: Float.
        kinds: `[n, parts]`, -1 where not known, or `None`.
    """

    def __init__(self, own: Array, loose: Array, reach: float, on: float):
        both = np.concatenate([own, loose], axis=1)
        self._masks = both if both.ndim == 4 else None
        self._centres = _centroids(both) if both.ndim == 4 else both
        self._on = on
        self.reach = reach
        self.num_own = own.shape[1]
        self.there: Array = np.isfinite(self._centres[..., 0])
        self.kinds: Array | None = None

    def with_kinds(
        self,
        kinds: ArrayLike | None,
        loose_kinds: ArrayLike | None,
        names: Sequence[str] | None,
    ) -> tuple[str, ...] | None:
        """Notes the kinds of parts, and returns what they are called."""
        if kinds is None:
            return None
        number = len(self.there), self.there.shape[1] - self.num_own
        if loose_kinds is None:
            loose_kinds = np.full(number, -1)
        given = [np.asarray(kinds), np.asarray(loose_kinds)]
        shapes = [(number[0], self.num_own), number]
        for name, values, shape in zip(
            ("kinds", "loose_kinds"), given, shapes, strict=True
        ):
            if values.shape != shape or values.dtype.kind not in "iu":
                raise ValueError(
                    f"`{name}` must be ints of the shape {shape}, one for each "
                    f"part. Received: {values.dtype} of the shape "
                    f"{values.shape}."
                )
        if np.any(given[0][self.there[:, : self.num_own]] < 0):
            raise ValueError(
                "`kinds` must be at least 0 for each part that an image has. "
                f"Received: {given[0].min()}."
            )
        self.kinds = np.where(
            self.there, np.concatenate(given, axis=1).astype(np.int64), -1
        )
        count = int(self.kinds.max()) + 1
        if names is None:
            names = [str(kind) for kind in range(count)]
        if len(names) < count:
            raise ValueError(
                "`kind_names` must have a name for each kind. Received: "
                f"{len(names)} names and the kind {count - 1}."
            )
        return tuple(names)

    def leaves_of(self, trees: Trees) -> Iterator[Leaves]:
        """Yields the leaves of the trees of the same images, in parts."""
        for start in range(0, len(trees), _CHUNK):
            some = slice(start, start + _CHUNK)
            image, child = np.nonzero(trees.in_tree[some])
            places = trees.places[some][image, child]
            apart = places[:, np.newaxis] - self._centres[some][image]
            distances = np.linalg.norm(apart, axis=-1)
            on = distances <= self._on
            if self._masks is not None:
                on = _lie_on(self._masks[some], image, places)
            yield Leaves(some, image, child, distances, on)

    def hits(self, leaves: Leaves) -> Array:
        """Returns how many leaves find each of the object's parts, `[b, p]`."""
        found = np.zeros_like(self.there[leaves.images, : self.num_own], int)
        near = leaves.distances[:, : self.num_own] <= self.reach
        np.add.at(found, leaves.image, near.astype(int))
        return found


def known_parts(
    trees: Trees,
    parts: ArrayLike,
    loose: ArrayLike | None,
    reach: float,
    on: float,
) -> KnownParts:
    """Returns where parts are, if they fit the trees.

    Raises:
        ValueError: If they do not.
    """
    own = np.asarray(parts)
    others = own[:, :0] if loose is None else np.asarray(loose)
    if not trees.has_places:
        raise ValueError(
            "Leaves lie on parts only where children have positions, "
            "[b, h, w, t, k]. Received: trees whose places are not known. "
            "Leave out `parts`."
        )
    for name, values in (("parts", own), ("loose", others)):
        are_masks = values.ndim == 4 and values.dtype == bool
        are_centres = values.ndim == 3 and values.shape[2] == 2
        if (
            not (are_masks or are_centres and values.dtype.kind in "fiu")
            or len(values) != len(trees)
            or values.shape[2:] != own.shape[2:]
        ):
            raise ValueError(
                f"`{name}` must be masks, bool [{len(trees)}, {name}, rows, "
                f"columns], or centres, [{len(trees)}, {name}, 2], and `loose` "
                f"of the same form as `parts`. Received: {values.dtype} of the "
                f"shape {values.shape}."
            )
    if not 0 < reach <= on:
        raise ValueError(
            "`reach` must be above 0 and at most `on`. Received: "
            f"reach={reach}, on={on}."
        )
    known = KnownParts(own, others, reach, on)
    if not known.there[:, : known.num_own].any():
        raise ValueError(
            "`parts` must have at least one part of one image. Received: none."
        )
    return known


def _centroids(masks: Array) -> Array:
    """Returns the means of masks' pixels, `[n, parts, 2]`, NaN of none."""
    rows, columns = (np.arange(size) for size in masks.shape[2:])
    with np.errstate(invalid="ignore"):
        down, right = (
            np.sum(masks.sum(axis=axis) * along, axis=-1)
            / masks.sum(axis=(2, 3))
            for axis, along in ((3, rows), (2, columns))
        )
    return np.stack([down, right], axis=-1)


def _lie_on(masks: Array, image: Array, places: Array) -> Array:
    """Tells which of their image's widened masks places lie on, `[l, p]`."""
    count, each, rows, columns = masks.shape
    sides = (_MARGIN, _MARGIN)  # a place may lie beyond the border
    flat = masks.reshape(count * each, rows, columns)
    wide = widened(np.pad(flat, ((0, 0), sides, sides)), _MARGIN)
    wide = wide.reshape(count, each, *wide.shape[1:])
    row, column = np.floor(places + 0.5).astype(np.int64).T + _MARGIN
    inside = (row >= 0) & (row < wide.shape[2])
    inside &= (column >= 0) & (column < wide.shape[3])
    on = np.zeros((len(places), each), bool)
    on[inside] = wide[image[inside], :, row[inside], column[inside]]
    return on

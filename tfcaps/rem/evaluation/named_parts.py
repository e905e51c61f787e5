"""Measures whether the types of a tree's leaves name the parts under them."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.rem.evaluation.named_parts_report import USED_SHARE, NamedParts
from tfcaps.rem.maps import widened
from tfcaps.rem.parse.trees import Trees, trees

Array = NDArray[Any]

_CONSISTENT = 0.8  # of the images that show a type

_CHUNK = 100  # images that are looked at together
_MARGIN = 2  # pixels by which masks are widened, as in `trees_on_parts`


def named_parts(
    trees: Trees,
    parts: ArrayLike | None = None,
    loose: ArrayLike | None = None,
    kinds: ArrayLike | None = None,
    loose_kinds: ArrayLike | None = None,
    *,
    kind_names: Sequence[str] | None = None,
    reach: float = 2.5,
    on: float = 3.7,
) -> NamedParts:
    """Measures how well the types of leaves name the parts under them.

    A leaf finds a part if it is at most `reach` pixels from its centre. It lies
    on a part if it is at most `on` pixels from its centre or, where masks are
    given, on the mask or at most two pixels beside it; of several on the one
    whose centre is nearest.

    Args:
        trees: What `tfcaps.rem.trees` returns of `n` images.
        parts: The object's parts: masks, bool `[n, parts, rows, columns]`, or
            row and column of their centres in pixels, `[n, parts, 2]`, the
            centre of the first pixel at 0. A part that an image does not have
            is False everywhere, or NaN. Defaults to `None`, not known, of which
            only the leaves' types are measured.
        loose: Parts that belong to no object, the same way. Defaults to `None`,
            none.
        kinds: The kind of each of `parts`, ints `[n, parts]`, from 0 on. Which
            slot of its class a part fills is no kind. Defaults to `None`, not
            known.
        loose_kinds: Those of `loose`. Defaults to `None`, not known; then
            leaves on loose parts tell nothing about types.
        kind_names: What the kinds are called. Defaults to their numbers.
        reach: Float, above 0, in pixels. Defaults to `2.5`.
        on: Float, at least `reach`, in pixels. Defaults to `3.7`.

    Returns:
        `NamedParts`, which prints as a table and saves as JSON.

    Raises:
        ValueError: If shapes do not fit, the children have no places, a kind is
            missing, or no image has a part.

    Example:

    >>> import numpy as np
    >>> from tfcaps import rem
    >>> from tfcaps.models import dr_capsnet
    >>> network = dr_capsnet((20, 20, 1), 10, filters=4, primary_types=2)
    >>> trees = rem.trees(network, np.zeros((3, 20, 20, 1), "float32"))
    >>> centres = np.full((3, 1, 2), 8.0)  # a part in each image
    >>> named_parts(trees, centres, kinds=np.zeros((3, 1), int)).found
    0.0

    References:
        - Nauta et al., 2023, "PIP-Net" (purity)
        - Huang et al., 2022, https://arxiv.org/abs/2212.05946 (consistency)
        - van der Klis et al., 2023, "PDiscoNet" (NMI and ARI of parts)
    """
    of_types = _of_types(trees)
    if parts is None:
        given = {"loose": loose, "kinds": kinds, "loose_kinds": loose_kinds}
        for name, values in given.items():
            if values is not None:
                raise ValueError(f"`{name}` needs `parts`. Received: None.")
        return of_types
    known = known_parts(trees, parts, loose, reach, on)
    names = known.with_kinds(kinds, loose_kinds, kind_names)
    counts = _Counts(trees, known)
    for leaves in known.leaves_of(trees):
        counts.add(leaves)
    found = counts.of_parts()
    if names is not None:
        found |= counts.of_kinds(names)
    return dataclasses.replace(of_types, **found, reach=float(reach))


def _of_types(trees: Trees) -> NamedParts:
    """Returns the measures for which no part need be known."""
    leaves = np.bincount(
        trees.types, trees.in_tree.sum(axis=0), trees.num_types
    )
    shares = leaves / max(leaves.sum(), 1.0)
    bits = entropy(leaves)
    _, sets = np.unique(trees.slots, axis=0, return_inverse=True)
    sets = sets.ravel()
    return NamedParts(
        samples=len(trees),
        empty_trees=float(np.mean(trees.leaves == 0)),
        leaves=float(np.mean(trees.leaves)),
        leaves_deviation=float(np.std(trees.leaves)),
        types=trees.num_types,
        types_used=int(np.sum(shares > USED_SHARE)),
        type_bits=bits,
        type_evenness=bits / max(np.log2(trees.num_types), 1.0),
        top_type=int(np.argmax(leaves)) if leaves.any() else None,
        top_type_share=float(np.max(shares)),
        slot_bits=float(
            np.mean(
                [
                    entropy(np.bincount(sets[trees.predicted == j]))
                    for j in np.unique(trees.predicted)
                ]
            )
        ),
        distinct_trees=int(sets.max()) + 1,
    )


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
    """The places of the parts of images, the object's before the loose ones.

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
        """Counts the leaves that find each of the object's parts, `[b, p]`."""
        found = np.zeros_like(self.there[leaves.images, : self.num_own], int)
        near = leaves.distances[:, : self.num_own] <= self.reach
        np.add.at(found, leaves.image, near.astype(int))
        return found


class _Counts:
    """Adds up what leaves lie on."""

    def __init__(self, trees: Trees, known: KnownParts):
        self._trees = trees
        self._known = known
        self._hits = np.zeros((len(trees), known.num_own), int)
        self._places = np.zeros(3)  # own, loose, nothing
        kinds = 0 if known.kinds is None else int(known.kinds.max()) + 1
        self._table = np.zeros((trees.num_types, kinds), np.int64)
        self._shown = np.zeros(trees.num_types, np.int64)
        self._under = np.zeros((trees.num_types, kinds), np.int64)

    def add(self, leaves: Leaves) -> None:
        """Adds the leaves of some images."""
        known = self._known
        self._hits[leaves.images] = known.hits(leaves)
        if not len(leaves.image):
            return
        on_some = leaves.on.any(axis=1)
        near = np.where(leaves.on, leaves.distances, np.inf).argmin(axis=1)
        is_own = near < known.num_own
        where = np.where(on_some, np.where(is_own, 0, 1), 2)
        self._places += np.bincount(where, minlength=3)
        if known.kinds is None:
            return
        kinds = known.kinds[leaves.images][leaves.image]
        under = np.take_along_axis(kinds, near[:, np.newaxis], axis=1)[:, 0]
        types = self._trees.types[leaves.child]
        told = on_some & (under >= 0)
        np.add.at(self._table, (types[told], under[told]), 1)
        self._add_strongest(leaves, types, kinds)

    def _add_strongest(
        self, leaves: Leaves, types: Array, kinds: Array
    ) -> None:
        """Adds the kinds under the leaf of each type that is coupled most."""
        towards = self._trees.towards[leaves.images]
        strength = towards[leaves.image, leaves.child]
        order = np.argsort(-strength, kind="stable")
        keys = leaves.image[order] * self._trees.num_types + types[order]
        _, first = np.unique(keys, return_index=True)
        best = order[first]
        np.add.at(self._shown, types[best], 1)
        for kind in range(self._under.shape[1]):
            is_under = np.any(leaves.on[best] & (kinds[best] == kind), axis=1)
            np.add.at(self._under[:, kind], types[best[is_under]], 1)

    def of_parts(self) -> dict[str, Any]:
        """Returns the measures of places."""
        known, hits = self._known, self._hits
        there = known.there[:, : known.num_own]
        whole = np.all((hits == 1) | ~there, axis=1)
        as_many = self._trees.leaves == there.sum(axis=1)
        own, loose, nothing = self._places / max(self._places.sum(), 1.0)
        return {
            "found": float(np.mean(hits[there] > 0)),
            "found_once": float(np.mean(hits[there] == 1)),
            "own": float(own),
            "loose": float(loose),
            "nothing": float(nothing),
            "perfect": float(np.mean(whole & as_many & there.any(axis=1))),
        }

    def of_kinds(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Returns the measures of types and kinds."""
        table = np.zeros((len(self._table), len(names)), np.int64)
        table[:, : self._table.shape[1]] = self._table
        shown = self._shown > 0
        most = self._under[shown].max(axis=1) / self._shown[shown]
        told = table.any()
        return {
            "information": mutual_information(table) if told else 0.0,
            "rand_index": adjusted_rand_index(table) if told else 0.0,
            "purity": float(
                table.max(axis=1).sum() / max(self._places.sum(), 1.0)
            ),
            "consistency": float(np.mean(most >= _CONSISTENT))
            if shown.any()
            else 0.0,
            "table": tuple(tuple(row) for row in table.tolist()),
            "kind_names": names,
            "names": tuple(
                names[int(np.argmax(row))] if row.any() else None
                for row in table
            ),
        }


def part_stability(
    model: keras.Model,
    images: Array,
    parts: ArrayLike,
    *,
    noise: float = 0.2,
    most: float = 0.25,
    reach: float = 2.5,
    seed: int = 0,
    batch_size: int = 256,
) -> float:
    """Returns the share of images whose found parts stay the same under noise.

    A part is found if a leaf of the tree is at most `reach` pixels from its
    centre, as in `named_parts`. The noise is drawn for each pixel from a normal
    distribution, and cut off.

    Args:
        model: As in `trees`.
        images: Its input `[n, h, w, c]`.
        parts: As in `named_parts`, masks or centres of the object's parts.
        noise: Float. Standard deviation of the noise, in units of the images.
            Defaults to `0.2`.
        most: Float. Noise beyond it is cut off. Defaults to `0.25`.
        reach: Float, above 0, in pixels. Defaults to `2.5`.
        seed: Int. Seed of the noise. Defaults to `0`.
        batch_size: Int. Most images in a batch. Defaults to `256`.

    Returns:
        Float in [0, 1].

    Raises:
        ValueError: As in `trees` and `named_parts`.

    References:
        - Huang et al., 2022, https://arxiv.org/abs/2212.05946 (stability)
    """
    draw = np.random.default_rng(seed)
    images = np.asarray(images)
    added = draw.normal(0.0, noise, images.shape).clip(-most, most)
    before = trees(model, images, batch_size=batch_size)
    noisy = (images + added).astype(np.float32)
    after = trees(model, noisy, batch_size=batch_size)
    known = known_parts(before, parts, None, reach, reach)
    first, second = (_found(known, each) for each in (before, after))
    return float(np.mean(np.all(first == second, axis=1)))


def _found(known: KnownParts, found: Trees) -> Array:
    """Returns a mask of the parts that are found, bool `[n, parts]`."""
    hits = [known.hits(leaves) for leaves in known.leaves_of(found)]
    return np.concatenate(hits) > 0


def known_parts(
    trees: Trees,
    parts: ArrayLike,
    loose: ArrayLike | None,
    reach: float,
    on: float,
) -> KnownParts:
    """Returns the places of parts, if they fit the trees.

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


def entropy(counts: ArrayLike) -> float:
    """Returns the entropy of counts in bits, 0 of none."""
    counts = np.asarray(counts, np.float64).ravel()
    shares = counts[counts > 0] / max(counts.sum(), 1.0)
    return float(max(0.0, -np.sum(shares * np.log2(shares))))


def mutual_information(table: ArrayLike) -> float:
    """Returns the normalised mutual information of rows and columns.

    That is the mutual information over the mean of both entropies, the
    "arithmetic" one of scikit-learn's `normalized_mutual_info_score`; 1 where
    neither rows nor columns differ.

    Args:
        table: How many things are of a row and a column, `[rows, columns]`.

    Returns:
        Float in [0, 1].

    References:
        - Strehl, Ghosh, 2002, "Cluster ensembles"
    """
    table = np.asarray(table, np.float64)
    rows, columns = entropy(table.sum(axis=1)), entropy(table.sum(axis=0))
    if not rows and not columns:
        return 1.0
    shared = rows + columns - entropy(table)
    return float(np.clip(2.0 * shared / (rows + columns), 0.0, 1.0))


def adjusted_rand_index(table: ArrayLike) -> float:
    """Returns the agreement of rows and columns on pairs, beyond chance.

    It is that of scikit-learn's `adjusted_rand_score`.

    Args:
        table: How many things are of a row and a column, `[rows, columns]`.

    Returns:
        Float, at most 1, and 0 on average for random rows.

    References:
        - Hubert, Arabie, 1985, "Comparing partitions"
    """
    table = np.asarray(table, np.float64)
    both = _pairs(table)
    rows, columns = _pairs(table.sum(axis=1)), _pairs(table.sum(axis=0))
    total = _pairs(table.sum())
    by_chance = rows * columns / total if total else 0.0
    most = 0.5 * (rows + columns)
    if most == by_chance:
        return 1.0
    return (both - by_chance) / (most - by_chance)


def _pairs(counts: Any) -> float:
    return float(np.sum(counts * (counts - 1.0) / 2.0))

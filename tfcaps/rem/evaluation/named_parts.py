"""Measures trees where the true parts of objects are known."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from tfcaps.rem.parse.dictionary import entropy
from tfcaps.rem.parse.trees import Trees
from tfcaps.rem.parse.trees import trees as trees_of
from tfcaps.rem.results import Result, lines_of, percent

Array = NDArray[Any]

# Trees name parts if both are at least so large: few leaves on few parts may
# have clear types, and many leaves on each part name none.
LEAST_FOUND = 0.8
LEAST_INFORMATION = 0.8
# Above it, leaves are of one type, and name nothing whatever parts there are.
ONE_TYPE = 0.95
_USED_SHARE = 0.01  # a type of fewer leaves is not used
_MARGIN = 2  # pixels by which masks are widened in every direction
_REACH = 2.5  # pixels from a centre at which a leaf finds its part
_ON = 3.7  # pixels around a centre that are on its part, without masks


@dataclasses.dataclass(frozen=True)
class NamedParts(Result):
    """The result of `tfcaps.rem.named_parts`: prints, and saves as JSON.

    Leaves are the children in a tree. Measures from `found_once` on are `None`
    where parts are not known, from `information` on where kinds are not.

    Attributes:
        leaves: Mean number of leaves of a tree.
        types: How many types of children there are.
        types_used: How many have more than 1 % of the leaves.
        top_type: The most frequent type of the leaves, or `None` without any.
        top_type_share: Share of the leaves that are of it.
        slot_bits: Mean over predicted classes of the entropy in bits of
            `Trees.slots`, the set of types in a tree.
        found_once: Share of the objects' parts that exactly one leaf finds.
        own: Share of the leaves on the object's own parts.
        loose: Share on loose parts, which belong to no object.
        perfect: Share of images with as many leaves as parts and exactly one on
            each.
        information: Normalised mutual information (NMI) of a leaf's type and
            the kind of the part under it, over leaves on parts, in [0, 1].
        rand_index: Adjusted Rand index (ARI) of the same; 0 by chance.
        purity: Share of the leaves that lie on a part of the kind on which most
            leaves of their type lie.
        parts_named: Share of the objects' parts on which a leaf lies whose type
            stands for their kind.
        labelled_f1: Harmonic mean of that and of the share of the leaves that
            name a part, each part named once: the labelled F1 of parsing.
        table: How many leaves of each type lie on parts of each kind, `[types,
            kinds]`.
        kind_names: What the kinds are called.
        names: For each type the kind on which most of its leaves lie, or `None`
            if none does.
        stability: What `part_stability` returned, if that was measured.
    """

    told = ("named", "verdict")

    leaves: float
    types: int
    types_used: int
    top_type: int | None
    top_type_share: float
    slot_bits: float
    found_once: float | None = None
    own: float | None = None
    loose: float | None = None
    perfect: float | None = None
    information: float | None = None
    purity: float | None = None
    parts_named: float | None = None
    labelled_f1: float | None = None
    table: tuple[tuple[int, ...], ...] | None = None
    kind_names: tuple[str, ...] | None = None
    names: tuple[str | None, ...] | None = None
    stability: float | None = None
    rand_index: float | None = None

    @property
    def named(self) -> bool | None:
        """Whether the trees name parts, or `None` where that is not known.

        They do if at least 80 % of the parts have exactly one leaf and the NMI
        is at least 0.8. Trees with more than 95 % of their leaves of one type
        name none, whatever parts there are.
        """
        known = None not in (self.found_once, self.information)
        return False if self._failures else known or None

    @property
    def _failures(self) -> list[str]:
        """Why the trees do not name parts, as far as that is known."""
        if self.top_type is None:
            return ["they have no leaf"]
        failures = []
        share = percent(self.top_type_share)
        of_one = f"{share} of their leaves are of type {self.top_type}"
        if self.information is None:
            if self.top_type_share > ONE_TYPE:
                failures.append(of_one)
        elif self.information < LEAST_INFORMATION:
            failures.append(
                "the type of a leaf says too little about the part under it "
                f"(NMI {self.information:.2f}, below {LEAST_INFORMATION:.2f}); "
                f"{of_one}"
            )
        elif sum(map(any, zip(*self.table or (), strict=True))) < 2:
            failures.append("there are leaves on parts of one kind only")
        if self.found_once is not None and self.found_once < LEAST_FOUND:
            failures.append(
                f"{percent(self.found_once)} of the parts have exactly one "
                f"leaf, fewer than {percent(LEAST_FOUND)}"
            )
        return failures

    @property
    def verdict(self) -> str:
        """One sentence on whether the trees name parts."""
        if self._failures:
            return f"The trees do not name parts: {'; '.join(self._failures)}."
        if self.named:
            return (
                f"The trees name parts: {percent(self.found_once)} of the "
                "parts have exactly one leaf, and its type says what is under "
                f"it (NMI {self.information:.2f})."
            )
        missing = "masks" if self.found_once is None else "kinds of the parts"
        return (
            f"Whether the trees name parts is not known without {missing}: "
            f"their leaves are of {self.types_used} of {self.types} types, "
            f"{percent(self.top_type_share)} of type {self.top_type}."
        )

    def __str__(self) -> str:
        nmi, ari = (
            None if value is None else f"{value:.2f}"
            for value in (self.information, self.rand_index)
        )
        lines = lines_of(
            [
                ("leaves of a tree", f"{self.leaves:.1f}"),
                ("types of leaves", f"{self.types_used} of {self.types}"),
                ("most frequent type", percent(self.top_type_share)),
                ("sets of types in a class", f"{self.slot_bits:.2f} bits"),
                ("parts with exactly one leaf", percent(self.found_once)),
                ("leaves on the object's parts", percent(self.own)),
                ("leaves on loose parts", percent(self.loose)),
                ("trees of one leaf on each part", percent(self.perfect)),
                ("purity of types", percent(self.purity)),
                ("parts with their name", percent(self.parts_named)),
                ("labelled F1 of the tree", percent(self.labelled_f1)),
                ("hit parts stable under noise", percent(self.stability)),
                ("NMI of type and kind", nmi),
                ("ARI of type and kind", ari),
            ]
        )
        rows: list[Any] = [("leaves of type", *(self.kind_names or ()))]
        for number, row in enumerate(self.table or ()):
            if any(row):
                rows.append((number, *row))
        if self.table is not None:
            lines += [""] + [
                f"{first:>14}" + "".join(f"  {text:>8}" for text in rest)
                for first, *rest in rows
            ]
        return "\n".join([*lines, "", self.verdict])


def named_parts(
    trees: Trees,
    parts: ArrayLike | None = None,
    loose: ArrayLike | None = None,
    kinds: ArrayLike | None = None,
    loose_kinds: ArrayLike | None = None,
    *,
    kind_names: Sequence[str] | None = None,
    type_kinds: ArrayLike | None = None,
    reach: float | None = _REACH,
) -> NamedParts:
    """Measures how well the types of leaves name the parts under them.

    A leaf finds a part if it is at most `reach` pixels from its centre. It lies
    on a part if it is at most 3.7 pixels from its centre or, of masks, at most
    two pixels beside it; of several on the one whose centre is nearest.

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
        type_kinds: The kind that each type stands for, -1 for none, ints
            `[types]`, as was found on other images. Defaults to `None`, that on
            which most of its leaves lie.
        reach: Float or `None`, with which a leaf finds the part it lies on, as
            for boxes that differ in size. Defaults to `2.5`.

    Raises:
        ValueError: If shapes do not fit, the children have no places, a kind is
            missing, there is no tree, or no image has a part.

    References:
        - Nauta et al., 2023, "PIP-Net" (purity)
        - van der Klis et al., 2023, "PDiscoNet" (NMI of parts)
    """
    if not len(trees):
        raise ValueError("There must be a tree at least. Received: none.")
    of_types = _of_types(trees)
    if parts is None:
        if any(x is not None for x in (loose, kinds, loose_kinds)):
            raise ValueError(
                "`loose`, `kinds` and `loose_kinds` need `parts`. Received: "
                "parts=None."
            )
        return of_types
    there, hits, under = _on_parts(trees, parts, loose, reach)
    own = np.shape(parts)[1]
    of_object, hits = there[:, :own], hits[:, :own]
    image, child = np.nonzero(trees.in_tree)
    on_some, count = under >= 0, max(len(under), 1)
    whole = np.all((hits == 1) | ~of_object, axis=1) & of_object.any(axis=1)
    whole &= trees.leaves == of_object.sum(axis=1)
    measures: dict[str, Any] = {
        "found_once": float(np.mean(hits[of_object] == 1)),
        "own": float(np.sum(on_some & (under < own)) / count),
        "loose": float(np.sum(under >= own) / count),
        "perfect": float(np.mean(whole)),
    }
    if kinds is not None:
        of_each, names = _kinds(there, own, kinds, loose_kinds, kind_names)
        of_type = trees.types[child]
        table = np.zeros((trees.num_types, len(names)), np.int64)
        kind = np.where(on_some, of_each[image, under], -1)
        np.add.at(table, (of_type[kind >= 0], kind[kind >= 0]), 1)
        if type_kinds is None:
            type_kinds = np.where(table.any(axis=1), table.argmax(axis=1), -1)
        right = (kind >= 0) & (np.asarray(type_kinds)[of_type] == kind)
        right &= under < own
        named = len(set(zip(image[right], under[right], strict=True)))
        expected = int(of_object.sum())
        measures |= {
            "parts_named": named / expected,
            "labelled_f1": 2.0 * named / (len(under) + expected),
            "information": mutual_information(table) if table.any() else 0.0,
            "rand_index": rand_index(table) if table.any() else 0.0,
            "purity": float(table.max(axis=1).sum() / count),
            "table": tuple(tuple(row) for row in table.tolist()),
            "kind_names": names,
            "names": tuple(
                names[int(np.argmax(row))] if row.any() else None
                for row in table
            ),
        }
    return dataclasses.replace(of_types, **measures)


def part_stability(
    model: keras.Model,
    images: Array,
    parts: ArrayLike,
    *,
    noise: float = 0.2,
    most: float = 0.25,
    reach: float | None = _REACH,
    seed: int = 0,
    batch_size: int = 256,
) -> float:
    """Returns the share of images whose found parts stay the same under noise.

    A part is found as in `named_parts`. The noise is drawn for each pixel from
    a normal distribution, and cut off.

    Args:
        model: As in `trees`.
        images: Its input `[n, h, w, c]`.
        parts: As in `named_parts`.
        noise: Float. Standard deviation, in units of the images. Defaults to
            `0.2`.
        most: Float. Noise beyond it is cut off. Defaults to `0.25`.
        reach: As in `named_parts`. Defaults to `2.5`.
        seed: Int. Seed of the noise. Defaults to `0`.
        batch_size: Int. Most images in a batch. Defaults to `256`.

    References:
        - Huang et al., 2022, https://arxiv.org/abs/2212.05946 (stability)
    """
    draw = np.random.default_rng(seed)
    images = np.asarray(images)
    added = draw.normal(0.0, noise, images.shape).clip(-most, most)
    noisy = (images + added).astype(np.float32)
    found = []
    for pixels in (images, noisy):
        seen = trees_of(model, pixels, batch_size=batch_size)
        _, hits, _ = _on_parts(seen, parts, None, reach)
        found.append(hits > 0)
    return float(np.mean(np.all(found[0] == found[1], axis=1)))


def _of_types(trees: Trees) -> NamedParts:
    """Returns the measures for which no part need be known."""
    leaves = np.bincount(
        trees.types, trees.in_tree.sum(axis=0), trees.num_types
    )
    shares = leaves / max(leaves.sum(), 1.0)
    _, sets = np.unique(trees.slots, axis=0, return_inverse=True)
    bits = [
        entropy(np.bincount(sets.ravel()[trees.predicted == j]))
        for j in np.unique(trees.predicted)
    ]
    return NamedParts(
        leaves=float(np.mean(trees.leaves)),
        types=trees.num_types,
        types_used=int(np.sum(shares > _USED_SHARE)),
        top_type=int(np.argmax(leaves)) if leaves.any() else None,
        top_type_share=float(np.max(shares)),
        slot_bits=float(np.mean(bits)),
    )


def _kinds(
    there: Array,
    own: int,
    kinds: ArrayLike,
    loose_kinds: ArrayLike | None,
    names: Sequence[str] | None,
) -> tuple[Array, tuple[str, ...]]:
    """Returns the kind of each part, -1 of none, and names of kinds."""
    images, number = there.shape
    if loose_kinds is None:
        loose_kinds = np.full((images, number - own), -1)
    given = [np.asarray(kinds), np.asarray(loose_kinds)]
    for name, values, count in zip(
        ("kinds", "loose_kinds"), given, (own, number - own), strict=True
    ):
        if values.shape != (images, count) or values.dtype.kind not in "iu":
            raise ValueError(
                f"`{name}` must be ints of the shape {(images, count)}, one "
                f"for each part. Received: {values.dtype} of the shape "
                f"{values.shape}."
            )
    if np.any(given[0][there[:, :own]] < 0):
        raise ValueError(
            "`kinds` must be at least 0 for each part that an image has. "
            f"Received: {given[0].min()}."
        )
    every = np.where(there, np.concatenate(given, axis=1), -1)
    most = int(every.max())
    names = tuple(map(str, range(most + 1))) if names is None else tuple(names)
    if len(names) <= most:
        raise ValueError(
            "`kind_names` must have a name for each kind. Received: "
            f"{len(names)} names and the kind {most}."
        )
    return every, names


def _on_parts(
    trees: Trees, parts: ArrayLike, loose: ArrayLike | None, reach: float | None
) -> tuple[Array, Array, Array]:
    """Looks up the parts that leaves find, and on which they lie.

    Returns:
        Which parts an image has, `[n, parts]`, the object's before the loose
        ones; how many leaves find each; and the part under each leaf, `[l]`, in
        the order of `np.nonzero(trees.in_tree)`, or -1.
    """
    places, own = check_parts(trees, parts, loose), np.shape(parts)[1]
    are_masks, centres = places.ndim == 4, centres_of(places)
    there = np.isfinite(centres[..., 0])
    if not there[:, :own].any():
        raise ValueError(
            "`parts` must have at least one part of one image. Received: none."
        )
    hits, under = [], []
    for image, inside in enumerate(trees.in_tree):
        leaves = trees.places[image, inside]
        apart = leaves[:, np.newaxis] - centres[image]
        distances = np.linalg.norm(apart, axis=-1)
        on = _lie_on(places[image], leaves) if are_masks else distances <= _ON
        nearest = np.where(on, distances, np.inf).argmin(axis=1)
        under.append(np.where(on.any(axis=1), nearest, -1))
        near = under[-1][:, np.newaxis] == np.arange(there.shape[1])
        if reach is not None:
            near = distances <= reach
        hits.append(near.sum(axis=0))
    return there, np.stack(hits), np.concatenate(under)


def check_parts(
    trees: Trees, parts: ArrayLike, loose: ArrayLike | None = None
) -> Array:
    """Returns masks or centres of parts, the object's before the loose ones.

    Raises:
        ValueError: If they do not fit the trees.
    """
    if not trees.has_places:
        raise ValueError(
            "Leaves lie on parts only where children have positions, "
            "[b, h, w, t, k]. Received: trees whose places are not known. "
            "Leave out `parts`."
        )
    own = np.asarray(parts)
    others = own[:, :0] if loose is None else np.asarray(loose)
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
    return np.concatenate([own, others], axis=1)


def centres_of(parts: Array) -> Array:
    """Returns the centres of masks or points, `[n, parts, 2]`, NaN of none."""
    if parts.ndim == 3:
        return parts
    flat = parts.reshape(*parts.shape[:2], -1)
    pixels = np.indices(parts.shape[2:]).reshape(2, -1).T
    with np.errstate(invalid="ignore"):
        return np.asarray(flat @ pixels / flat.sum(axis=-1, keepdims=True))


def _lie_on(masks: Array, places: Array) -> Array:
    """Tells which of an image's widened masks places lie on, `[l, parts]`."""
    sides = (_MARGIN, _MARGIN)  # a place may lie beyond the border
    size = 2 * _MARGIN + 1
    wide = np.pad(masks, ((0, 0), sides, sides))
    wide = ndimage.maximum_filter(wide, (1, size, size), mode="constant")
    row, column = np.floor(places + 0.5).astype(np.int64).T + _MARGIN
    inside = (row >= 0) & (row < wide.shape[1])
    inside &= (column >= 0) & (column < wide.shape[2])
    on = np.zeros((len(places), len(masks)), bool)
    on[inside] = wide[:, row[inside], column[inside]].T
    return on


def mutual_information(table: ArrayLike) -> float:
    """Returns the normalised mutual information of rows and columns.

    That is the mutual information over the mean of both entropies, as in
    scikit-learn; 1 where neither rows nor columns of the table differ.

    References:
        - Strehl, Ghosh, 2002, "Cluster ensembles"
    """
    table = np.asarray(table, np.float64)
    rows, columns = entropy(table.sum(axis=1)), entropy(table.sum(axis=0))
    if not rows and not columns:
        return 1.0
    shared = rows + columns - entropy(table)
    return float(np.clip(2.0 * shared / (rows + columns), 0.0, 1.0))


def rand_index(table: ArrayLike) -> float:
    """Returns the adjusted Rand index of rows and columns.

    That is by how much more pairs are together in both than by chance; 1 where
    rows and columns are the same.

    References:
        - Hubert, Arabie, 1985, "Comparing partitions"
    """
    table = np.asarray(table, np.float64)

    def pairs(counts: Any) -> float:
        return float(np.sum(counts * (counts - 1)) / 2)

    rows, columns = pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    chance = rows * columns / max(pairs(table.sum()), 1.0)
    most = (rows + columns) / 2
    return 1.0 if most == chance else (pairs(table) - chance) / (most - chance)

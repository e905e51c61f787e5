"""Measures trees where the true parts of objects are known."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike
from scipy import ndimage

from tfcaps.ops import Array
from tfcaps.parts.kinds import find
from tfcaps.rem.evaluation import words
from tfcaps.rem.parse.dictionary import entropy
from tfcaps.rem.parse.trees import Trees
from tfcaps.rem.parse.trees import trees as trees_of
from tfcaps.rem.results import Result, lines_of

# Trees name parts if both are at least so large, the parts found once and the
# NMI: few leaves on few parts may have clear types, and many leaves on each
# part name none.
LEAST = 0.8
# Above it, leaves are of one type, and name nothing whatever parts there are.
ONE_TYPE = 0.95
_USED_SHARE = 0.01  # a type of fewer leaves is not used
_MARGIN = 2  # pixels by which masks are widened in every direction
_ON = 3.7  # pixels around a centre that are on its part, without masks
_NOISE, _MOST_NOISE = 0.2, 0.25  # its deviation, and where it is cut off


@dataclasses.dataclass(frozen=True)
class PartMasks:
    """The true parts of objects in `n` images; `masks[rows]` are some of them.

    Parts are masks, bool `[n, parts, rows, columns]`, or row and column of
    their centres in pixels, `[n, parts, 2]`, the centre of the first pixel at
    0. A part that an image does not have is False everywhere, or NaN.

    Attributes:
        parts: The parts that the objects are made of.
        loose: Parts that belong to no object, the same way. Defaults to `None`,
            none.
        kinds: The kind of each of `parts`, ints `[n, parts]`, from 0 on. Which
            slot of its class a part fills is no kind. Defaults to `None`, not
            known.
        loose_kinds: Those of `loose`. Defaults to `None`, not known; then
            leaves on loose parts tell nothing about types.
        kind_names: What the kinds are called. Defaults to their numbers.
        reach: Float. A leaf finds a part if it is at most so many pixels from
            its centre; with `None` the part that it lies on, as for boxes that
            differ in size. Defaults to `2.5`.
        clear: Whether the images tell these parts clearly, where they are
            `estimated_parts`. Defaults to `None`: they are known.
    """

    parts: ArrayLike
    loose: ArrayLike | None = None
    kinds: ArrayLike | None = None
    loose_kinds: ArrayLike | None = None
    kind_names: Sequence[str] | None = None
    reach: float | None = 2.5
    clear: bool | None = None

    def __getitem__(self, rows: Any) -> "PartMasks":
        some = {
            name: np.asarray(value)[rows]
            for name in ("parts", "loose", "kinds", "loose_kinds")
            if (value := getattr(self, name)) is not None
        }
        return dataclasses.replace(self, **some)


@dataclasses.dataclass(frozen=True)
class NamedParts(Result):
    """The result of `tfcaps.rem.named_parts`: prints, and saves as JSON.

    Leaves are the children in a tree. Measures from `found_once` on are `None`
    where parts are not known, from `information` on where kinds are not.

    Attributes:
        leaves: Mean number of leaves of a tree.
        types, types_used: How many types of children there are, and how many
            have more than 1 % of the leaves.
        top_type, top_type_share: The most frequent type of the leaves, `None`
            without any, and its share of them.
        slot_bits: Mean over predicted classes of the entropy in bits of
            `Trees.slots`, the set of types in a tree.
        found_once: Share of the objects' parts that exactly one leaf finds.
        own, loose: Shares of the leaves on the object's own parts, and on loose
            ones, which belong to no object.
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
        clear: That of `PartMasks`.
    """

    properties = ("named", "verdict")
    words = words.parts_rows, words.parts_verdict
    least = LEAST

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
    clear: bool | None = None

    @property
    def named(self) -> bool | None:
        """Whether the trees name parts, or `None` where that is not known.

        They do if at least 80 % of the parts have exactly one leaf and the NMI
        is at least 0.8; never with more than 95 % of the leaves of one type.
        """
        if self.clear is False:
            return None
        known = None not in (self.found_once, self.information)
        return False if self.failures else known or None

    @property
    def failures(self) -> list[str]:
        """Why the trees do not name parts, by what is known.

        Some of `"no leaf"`, `"one type"`, `"information"`, `"one kind"` and
        `"found"`: the NMI is too low, or too few parts are found once.
        """
        if self.top_type is None:
            return ["no leaf"]
        failures = []
        if self.information is None:
            failures += ["one type"] * (self.top_type_share > ONE_TYPE)
        elif self.information < LEAST:
            failures.append("information")
        elif sum(map(any, zip(*self.table or (), strict=True))) < 2:
            failures.append("one kind")
        if self.found_once is not None and self.found_once < LEAST:
            failures.append("found")
        return failures

    def __str__(self) -> str:
        table = [] if self.table is None else ["", *words.parts_table(self)]
        return "\n".join([*lines_of(self.rows), *table, "", self.verdict])


def named_parts(
    trees: Trees,
    masks: PartMasks | None = None,
    *,
    type_kinds: ArrayLike | None = None,
) -> NamedParts:
    """Measures how well the types of leaves name the parts under them.

    A leaf finds a part if it is at most `masks.reach` pixels from its centre.
    It lies on a part if it is at most 3.7 pixels from its centre or, of masks,
    at most two pixels beside it; of several on the one whose centre is nearest.

    Args:
        trees: What `tfcaps.rem.trees` returns of `n` images.
        masks: The true parts of these images, or `estimated_parts`. Defaults to
            `None`, not known, of which only the leaves' types are measured.
        type_kinds: The kind that each type stands for, -1 for none, ints
            `[types]`, as was found on other images. Defaults to `None`, that on
            which most of its leaves lie.

    Raises:
        ValueError: If shapes do not fit, the children have no places, a kind is
            missing, there is no tree, or no image has a part.

    References:
        - Nauta et al., 2023, "PIP-Net" (purity)
        - van der Klis et al., 2023, "PDiscoNet" (NMI of parts)
    """
    if not isinstance(trees, Trees) or not isinstance(masks, PartMasks | None):
        raise ValueError(
            "Call `named_parts(tfcaps.rem.trees(model, images), tfcaps.rem."
            "PartMasks(parts))`. Received: "
            f"{type(trees).__name__} and {type(masks).__name__}."
        )
    if not len(trees):
        raise ValueError("There must be a tree at least. Received: none.")
    of_types = _of_types(trees)
    if masks is None or masks.clear is False:
        clear = None if masks is None else masks.clear
        return dataclasses.replace(of_types, clear=clear)
    there, hits, under = _on_parts(trees, masks)
    own = np.shape(masks.parts)[1]
    of_object, hits = there[:, :own], hits[:, :own]
    image, child = np.nonzero(trees.in_tree)
    on_some, count = under >= 0, max(len(under), 1)
    whole = np.all((hits == 1) | ~of_object, axis=1) & of_object.any(axis=1)
    whole &= trees.leaves == of_object.sum(axis=1)
    measures: dict[str, Any] = {
        "clear": masks.clear,
        "found_once": float(np.mean(hits[of_object] == 1)),
        "own": float(np.sum(on_some & (under < own)) / count),
        "loose": float(np.sum(under >= own) / count),
        "perfect": float(np.mean(whole)),
    }
    if masks.kinds is not None:
        of_each, names = _kinds(there, own, masks)
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


def estimated_parts(trees: Trees, images: Array, size: int = 11) -> PartMasks:
    """Estimates the parts of drawings from the images alone, without masks.

    The images of a class are laid on each other; what stands out in their mean
    are its parts, and those that look alike are of one kind. Of no use for
    photos, and for classes that are more than one arrangement of parts.

    Args:
        trees: What `tfcaps.rem.trees` returns of them: tells classes, and about
            where they are.
        images: The images `[n, h, w, c]`, some hundreds at least.
        size: Int, odd. Rows and columns of the window around a part. Defaults
            to `11`, for parts of about seven pixels.
    """
    images, leaves = trees.match(images), trees.in_tree[..., None]
    count = leaves.sum(axis=1)
    places = np.sum(np.where(leaves, trees.places, 0.0), axis=1)
    known = np.flatnonzero(count[:, 0])
    labels = trees.predicted[known]
    places = (places / np.maximum(count, 1))[known]
    parts = find(images[known], labels, places, size)
    slots = parts.slots
    number = np.bincount(slots.classes, minlength=1).max()
    centres = np.full((len(trees), number, 2), np.nan)
    of_part = np.full((len(trees), number), -1)
    for j in np.unique(slots.classes):
        own, rows = slots.classes == j, known[labels == j]
        shifts, middles = slots.shifts[own], parts.places[labels == j]
        centres[rows, : len(shifts)] = middles[:, None] + shifts
        of_part[rows, : len(shifts)] = slots.kinds[own]
    return PartMasks(centres, kinds=of_part, clear=parts.clear)


def part_stability(
    model: keras.Model,
    images: Array,
    trees: Trees,
    masks: PartMasks,
    *,
    batch_size: int = 256,
) -> float:
    """Returns the share of images whose found parts stay the same under noise.

    A part is found as in `named_parts`. The noise of each pixel is normal, of a
    deviation of 0.2 in units of the images `[n, h, w, c]`, and cut off at 0.25.

    References:
        - Huang et al., 2022, https://arxiv.org/abs/2212.05946 (stability)
    """
    images = np.asarray(images)
    added = np.random.default_rng(0).normal(0.0, _NOISE, images.shape)
    noisy = (images + added.clip(-_MOST_NOISE, _MOST_NOISE)).astype(np.float32)
    moved = trees_of(model, noisy, couplings=False, batch_size=batch_size)
    before, after = (_on_parts(x, masks)[1] > 0 for x in (trees, moved))
    return float(np.mean(np.all(before == after, axis=1)))


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
    there: Array, own: int, masks: PartMasks
) -> tuple[Array, tuple[str, ...]]:
    """Returns the kind of each part, -1 of none, and names of kinds."""
    images, number = there.shape
    shapes = {"kinds": (images, own), "loose_kinds": (images, number - own)}
    every = []
    for name, shape in shapes.items():
        given = getattr(masks, name)
        kinds = np.full(shape, -1) if given is None else np.asarray(given)
        if kinds.shape != shape or kinds.dtype.kind not in "iu":
            raise ValueError(
                f"`{name}` must be ints of the shape {shape}, one for each "
                f"part. Received: {kinds.dtype} of the shape {kinds.shape}."
            )
        every.append(kinds)
    if np.any(every[0][there[:, :own]] < 0):
        raise ValueError(
            "`kinds` must be at least 0 for each part that an image has. "
            f"Received: {every[0].min()}."
        )
    kinds = np.where(there, np.concatenate(every, axis=1), -1)
    most = int(kinds.max())
    names = tuple(masks.kind_names or map(str, range(most + 1)))
    if len(names) <= most:
        raise ValueError(
            "`kind_names` must have a name for each kind. Received: "
            f"{len(names)} names and the kind {most}."
        )
    return kinds, names


def _on_parts(trees: Trees, masks: PartMasks) -> tuple[Array, Array, Array]:
    """Returns which parts there are, and how many leaves find each, `[n, p]`.

    And the part under each leaf `[l]`, image by image, or -1.
    """
    parts, own = check_parts(trees, masks), np.shape(masks.parts)[1]
    centres = centres_of(parts)
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
        on = distances <= _ON
        if parts.ndim == 4:
            on = _lie_on(parts[image], leaves)
        nearest = np.where(on, distances, np.inf).argmin(axis=1)
        under.append(np.where(on.any(axis=1), nearest, -1))
        near = under[-1][:, np.newaxis] == np.arange(there.shape[1])
        if masks.reach is not None:
            near = distances <= masks.reach
        hits.append(near.sum(axis=0))
    return there, np.stack(hits), np.concatenate(under)


def check_parts(trees: Trees, masks: PartMasks) -> Array:
    """Returns masks or centres of parts, the object's before the loose ones."""
    if not trees.has_places:
        raise ValueError(
            "Leaves lie on parts only where children have positions, "
            "[b, h, w, t, k]. Received: trees whose places are not known. "
            "Leave out the masks."
        )
    own = np.asarray(masks.parts)
    others = own[:, :0] if masks.loose is None else np.asarray(masks.loose)
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
    """
    table = np.asarray(table, np.float64)
    rows, columns = entropy(table.sum(axis=1)), entropy(table.sum(axis=0))
    if not rows and not columns:
        return 1.0
    shared = rows + columns - entropy(table)
    return float(np.clip(2.0 * shared / (rows + columns), 0.0, 1.0))


def rand_index(table: ArrayLike) -> float:
    """Returns the adjusted Rand index of rows and columns, 1 of the same.

    That is by how much more pairs are together in both than by chance.
    """
    table = np.asarray(table, np.float64)

    def pairs(counts: Any) -> float:
        return float(np.sum(counts * (counts - 1)) / 2)

    rows, columns = pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    chance = rows * columns / max(pairs(table.sum()), 1.0)
    most = (rows + columns) / 2
    return 1.0 if most == chance else (pairs(table) - chance) / (most - chance)

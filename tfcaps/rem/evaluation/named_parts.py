"""Measures trees where the true parts of objects are known."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.rem.maps import widened
from tfcaps.rem.parse.trees import Trees, trees
from tfcaps.rem.results import Result, lines_of, percent

Array = NDArray[Any]

# Trees name parts if both are at least so large: few leaves on few parts may
# have clear types, and many leaves on each part name none.
LEAST_FOUND = 0.8
LEAST_INFORMATION = 0.8
# Above it, leaves are of one type, and name nothing whatever parts there are.
ONE_TYPE = 0.95
_USED_SHARE = 0.01  # a type of fewer leaves is not used
_CHUNK = 100  # images that are looked at together
_MARGIN = 2  # pixels by which masks are widened in every direction
_ON = 3.7  # pixels around a centre that are on its part, without masks


@dataclasses.dataclass(frozen=True)
class NamedParts(Result):
    """The result of `tfcaps.rem.named_parts`.

    Leaves are the children in a tree. Measures from `found` on are `None` where
    parts are not known, and from `information` on where their kinds are not.

    Attributes:
        samples: How many images were used.
        empty_trees: Share of images whose tree has no leaf.
        leaves: Mean number of leaves of a tree.
        leaves_deviation: Its standard deviation over images.
        types: How many types of children there are.
        types_used: How many have more than 1 % of the leaves.
        type_bits: Entropy of the leaves' types in bits.
        top_type: The most frequent type of the leaves, or `None` without any.
        top_type_share: Share of the leaves that are of it.
        slot_bits: Mean over predicted classes of the entropy in bits of
            `Trees.slots`, the set of types in a tree.
        distinct_trees: How many such sets there are.
        found: Share of the objects' parts with a leaf at most `reach` pixels
            from their centre.
        found_once: Share with exactly one.
        own: Share of the leaves on the object's own parts.
        loose: Share on loose parts, which belong to no object.
        nothing: Share on neither.
        perfect: Share of images with as many leaves as parts and exactly one on
            each.
        information: Normalised mutual information (NMI) of a leaf's type and
            the kind of the part under it, over leaves on parts, in [0, 1].
        purity: Share of the leaves that lie on a part of the kind on which most
            leaves of their type lie. A leaf on nothing does not.
        table: How many leaves of each type lie on parts of each kind, `[types,
            kinds]`.
        kind_names: What the kinds are called.
        names: For each type the kind on which most of its leaves lie, or `None`
            if none does.
        reach: As given, in pixels.
        stability: What `part_stability` returned, or `None` where
            that was not measured.
    """

    samples: int
    empty_trees: float
    leaves: float
    leaves_deviation: float
    types: int
    types_used: int
    type_bits: float
    top_type: int | None
    top_type_share: float
    slot_bits: float
    distinct_trees: int
    found: float | None = None
    found_once: float | None = None
    own: float | None = None
    loose: float | None = None
    nothing: float | None = None
    perfect: float | None = None
    information: float | None = None
    purity: float | None = None
    table: tuple[tuple[int, ...], ...] | None = None
    kind_names: tuple[str, ...] | None = None
    names: tuple[str | None, ...] | None = None
    reach: float | None = None
    stability: float | None = None

    @property
    def named(self) -> bool | None:
        """Whether the trees name parts, or `None` where that is not known.

        They do if at least 80 % of the parts have exactly one leaf and the NMI
        is at least 0.8. Trees with more than 95 % of their leaves of one type
        name none, whatever parts there are.
        """
        if self._failures:
            return False
        if self.found_once is None or self.information is None:
            return None
        return True

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
        missing = "masks" if self.found is None else "kinds of the parts"
        return (
            f"Whether the trees name parts is not known without {missing}: "
            f"their leaves are of {self.types_used} of {self.types} types, "
            f"{percent(self.top_type_share)} of type {self.top_type}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns all measures, ready for JSON."""
        return {
            **super().to_dict(),
            "named": self.named,
            "verdict": self.verdict,
        }

    def rows(self) -> list[tuple[str, str | None]]:
        """Returns the names of measures, and what they are as text."""
        nmi = None if self.information is None else f"{self.information:.2f}"
        return [
            (
                "leaves of a tree",
                f"{self.leaves:.1f} ± {self.leaves_deviation:.1f}",
            ),
            (
                "types of leaves",
                f"{self.types_used} of {self.types}, {self.type_bits:.2f} bits",
            ),
            ("most frequent type", percent(self.top_type_share)),
            (
                "sets of types",
                f"{self.distinct_trees}, {self.slot_bits:.2f} bits in a class",
            ),
            ("parts with a leaf", percent(self.found)),
            ("parts with exactly one leaf", percent(self.found_once)),
            ("leaves on the object's parts", percent(self.own)),
            ("leaves on loose parts", percent(self.loose)),
            ("leaves on nothing", percent(self.nothing)),
            ("trees of one leaf on each part", percent(self.perfect)),
            ("purity of types", percent(self.purity)),
            ("hit parts stable under noise", percent(self.stability)),
            ("NMI of type and kind", nmi),
        ]

    def __str__(self) -> str:
        lines = lines_of(self.rows())
        if self.table is not None and self.kind_names is not None:
            widths = [max(len(name), 6) for name in self.kind_names]
            cells = [("leaves of type", *self.kind_names)] + [
                (str(number), *map(str, row))
                for number, row in enumerate(self.table)
                if any(row)
            ]
            lines.append("")
            for first, *rest in cells:
                columns = zip(rest, widths, strict=True)
                texts = [f"  {text:>{width}}" for text, width in columns]
                lines.append(f"{first:>14}" + "".join(texts))
        return "\n".join([*lines, "", self.verdict])


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
            couplings must beat.
        loose_of_active: The same of `loose`.
        parts_found: Share of the objects' parts, over all images, on which at
            least one child of the tree lies. A tree without a child finds none.
        samples: How many images were used.
        empty_trees: Share of images whose tree has no child.
    """

    own: float | None
    loose: float | None
    nothing: float | None
    own_of_all: float
    loose_of_all: float
    own_of_active: float | None
    loose_of_active: float | None
    parts_found: float
    samples: int
    empty_trees: float

    def __str__(self) -> str:
        shares = {
            "weight on the object's parts": self.own,
            "weight on loose parts": self.loose,
            "weight on nothing": self.nothing,
            "all children on the object's parts": self.own_of_all,
            "all children on loose parts": self.loose_of_all,
            "all activations on the object's parts": self.own_of_active,
            "all activations on loose parts": self.loose_of_active,
            "parts with a child of the tree": self.parts_found,
            "empty trees": self.empty_trees,
        }
        return "\n".join(
            lines_of((name, percent(n) or "–") for name, n in shares.items())
        )


def named_parts(
    trees: Trees,
    parts: ArrayLike | None = None,
    loose: ArrayLike | None = None,
    kinds: ArrayLike | None = None,
    loose_kinds: ArrayLike | None = None,
    *,
    kind_names: Sequence[str] | None = None,
    reach: float = 2.5,
    on: float = _ON,
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
        - van der Klis et al., 2023, "PDiscoNet" (NMI of parts)
    """
    of_types = _of_types(trees)
    if parts is None:
        given = {"loose": loose, "kinds": kinds, "loose_kinds": loose_kinds}
        for name, values in given.items():
            if values is not None:
                raise ValueError(f"`{name}` needs `parts`. Received: None.")
        return of_types
    known = KnownParts(trees, parts, loose, reach, on)
    found = _of_places(trees, known)
    if kinds is not None:
        found |= _of_kinds(trees, known, kinds, loose_kinds, kind_names)
    return dataclasses.replace(of_types, **found, reach=float(reach))


def _of_types(trees: Trees) -> NamedParts:
    """Returns the measures for which no part need be known."""
    leaves = np.bincount(
        trees.types, trees.in_tree.sum(axis=0), trees.num_types
    )
    shares = leaves / max(leaves.sum(), 1.0)
    _, sets = np.unique(trees.slots, axis=0, return_inverse=True)
    sets = sets.ravel()
    return NamedParts(
        samples=len(trees),
        empty_trees=float(np.mean(trees.leaves == 0)),
        leaves=float(np.mean(trees.leaves)),
        leaves_deviation=float(np.std(trees.leaves)),
        types=trees.num_types,
        types_used=int(np.sum(shares > _USED_SHARE)),
        type_bits=entropy(leaves),
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


def _of_places(trees: Trees, known: "KnownParts") -> dict[str, Any]:
    """Returns the measures of where leaves are."""
    hits = known.hits(trees)
    places = np.zeros(3)  # own, loose, nothing
    for leaves in known.leaves_of(trees):
        nearest, on_some = leaves.nearest
        where = np.where(nearest < known.num_own, 0, 1)
        places += np.bincount(np.where(on_some, where, 2), minlength=3)
    there = known.there[:, : known.num_own]
    whole = np.all((hits == 1) | ~there, axis=1) & there.any(axis=1)
    own, loose, nothing = (places / max(places.sum(), 1.0)).tolist()
    return {
        "found": float(np.mean(hits[there] > 0)),
        "found_once": float(np.mean(hits[there] == 1)),
        "own": own,
        "loose": loose,
        "nothing": nothing,
        "perfect": float(np.mean(whole & (trees.leaves == there.sum(axis=1)))),
    }


def _of_kinds(
    trees: Trees,
    known: "KnownParts",
    kinds: ArrayLike,
    loose_kinds: ArrayLike | None,
    names: Sequence[str] | None,
) -> dict[str, Any]:
    """Returns the measures of types and kinds."""
    number, own = known.there.shape[1], known.num_own
    if loose_kinds is None:
        loose_kinds = np.full((len(trees), number - own), -1)
    given = [np.asarray(kinds), np.asarray(loose_kinds)]
    for name, values, count in zip(
        ("kinds", "loose_kinds"), given, (own, number - own), strict=True
    ):
        if values.shape != (len(trees), count) or values.dtype.kind not in "iu":
            raise ValueError(
                f"`{name}` must be ints of the shape {(len(trees), count)}, "
                f"one for each part. Received: {values.dtype} of the shape "
                f"{values.shape}."
            )
    if np.any(given[0][known.there[:, :own]] < 0):
        raise ValueError(
            "`kinds` must be at least 0 for each part that an image has. "
            f"Received: {given[0].min()}."
        )
    every = np.where(known.there, np.concatenate(given, axis=1), -1)
    most = int(every.max())
    names = list(map(str, range(most + 1))) if names is None else names
    if len(names) <= most:
        raise ValueError(
            "`kind_names` must have a name for each kind. Received: "
            f"{len(names)} names and the kind {most}."
        )
    table = np.zeros((trees.num_types, len(names)), np.int64)
    leaf_count = 0
    for leaves in known.leaves_of(trees):
        nearest, on_some = leaves.nearest
        under = every[leaves.images][leaves.image, nearest]
        told = on_some & (under >= 0)
        np.add.at(table, (trees.types[leaves.child][told], under[told]), 1)
        leaf_count += len(nearest)
    return {
        "information": mutual_information(table) if table.any() else 0.0,
        "purity": float(table.max(axis=1).sum() / max(leaf_count, 1)),
        "table": tuple(tuple(row) for row in table.tolist()),
        "kind_names": tuple(names),
        "names": tuple(
            names[int(np.argmax(row))] if row.any() else None for row in table
        ),
    }


def trees_on_parts(
    trees: Trees, parts: ArrayLike, loose: ArrayLike | None = None
) -> TreesOnParts:
    """Measures how much of parse trees lies on the true parts of objects.

    A child of a tree counts with its coupling times its activation. It lies on
    a part if it is on its mask, or at most two pixels beside it. One that lies
    on a part of the object and on a loose part counts for the object.

    Args:
        trees: What `tfcaps.rem.trees` returns of `n` images.
        parts: Masks or centres of the object's parts, as in `named_parts`.
        loose: Those of parts that belong to no object, the same; `None` for
            none. Defaults to `None`.

    Returns:
        `TreesOnParts`.

    Raises:
        ValueError: If shapes do not fit, the children have no places, or no
            image has a part.

    Example:

    >>> import numpy as np
    >>> from tfcaps import rem
    >>> from tfcaps.models import dr_capsnet
    >>> network = dr_capsnet((20, 20, 1), 10, filters=4, primary_types=2)
    >>> trees = rem.trees(network, np.zeros((3, 20, 20, 1), "float32"))
    >>> masks = np.zeros((3, 1, 20, 20), bool)
    >>> masks[:, :, 8:, :] = True  # a part that has all the children
    >>> trees_on_parts(trees, masks).own_of_all
    1.0
    """
    known = KnownParts(trees, parts, loose, _ON, _ON)
    weights = trees.towards * trees.activations * trees.in_tree
    own, other = np.zeros((2, *weights.shape), bool)
    found = 0
    for children in known.children_of(trees):
        some = children.images
        on = children.on.reshape(*weights[some].shape, -1)
        on_own, on_loose = np.split(on, [known.num_own], axis=-1)
        own[some] = on_own.any(axis=-1)
        other[some] = on_loose.any(axis=-1) & ~own[some]
        in_tree = weights[some] > 0.0
        found += int((on_own & in_tree[..., np.newaxis]).any(axis=1).sum())
    on_parts, on_others = _shares(weights, own), _shares(weights, other)
    nothing = None
    if on_parts is not None and on_others is not None:
        nothing = max(0.0, 1.0 - on_parts - on_others)
    return TreesOnParts(
        own=on_parts,
        loose=on_others,
        nothing=nothing,
        own_of_all=float(np.mean(own)),
        loose_of_all=float(np.mean(other)),
        own_of_active=_shares(trees.activations, own),
        loose_of_active=_shares(trees.activations, other),
        parts_found=found / int(known.there[:, : known.num_own].sum()),
        samples=len(trees),
        empty_trees=float(np.mean(~np.any(weights > 0.0, axis=1))),
    )


def _shares(weights: Array, on: Array) -> float | None:
    """Returns the mean share of weights `[n, i]` that are on something.

    Of images with a weight; `None` without any.
    """
    weights = weights.astype(np.float64)
    total = weights.sum(axis=1)
    some = total > 0.0
    if not some.any():
        return None
    return float(np.mean((weights * on).sum(axis=1)[some] / total[some]))


class _Placed(NamedTuple):
    """Children `l` of some images, and the parts near them.

    Attributes:
        images: The images, a slice.
        image: Which of them each child is of, `[l]`.
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

    @property
    def nearest(self) -> tuple[Array, Any]:
        """The nearest of the parts that it lies on, and whether it does."""
        distances = np.where(self.on, self.distances, np.inf)
        on_some = self.on.any(axis=1)
        return distances.argmin(axis=1), on_some


class KnownParts:
    """The places of the parts of images, the object's before the loose ones.

    Attributes:
        there: Which parts an image has, `[n, parts]`.
        num_own: Int. How many of them are the object's.

    Raises:
        ValueError: If they do not fit the trees.
    """

    def __init__(
        self,
        trees: Trees,
        parts: ArrayLike,
        loose: ArrayLike | None,
        reach: float,
        on: float,
    ):
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
                    f"`{name}` must be masks, bool [{len(trees)}, {name}, "
                    f"rows, columns], or centres, [{len(trees)}, {name}, 2], "
                    "and `loose` of the same form as `parts`. Received: "
                    f"{values.dtype} of the shape {values.shape}."
                )
        if not 0 < reach <= on:
            raise ValueError(
                "`reach` must be above 0 and at most `on`. Received: "
                f"reach={reach}, on={on}."
            )
        both = np.concatenate([own, others], axis=1)
        self._masks = both if both.ndim == 4 else None
        self._centres = _centroids(both) if both.ndim == 4 else both
        self._reach, self._on = reach, on
        self.num_own = own.shape[1]
        self.there: Array = np.isfinite(self._centres[..., 0])
        if not self.there[:, : self.num_own].any():
            raise ValueError(
                "`parts` must have at least one part of one image. Received: "
                "none."
            )

    def leaves_of(self, trees: Trees) -> Iterator[_Placed]:
        """Yields the leaves of the trees of the same images, in parts."""
        return self._placed(trees, trees.in_tree)

    def children_of(self, trees: Trees) -> Iterator[_Placed]:
        """Yields all children of the same images, in parts."""
        return self._placed(trees, np.ones_like(trees.in_tree))

    def hits(self, trees: Trees) -> Array:
        """Counts the leaves that find each of the object's parts, `[n, p]`."""
        found = np.zeros_like(self.there[:, : self.num_own], int)
        for leaves in self.leaves_of(trees):
            near = leaves.distances[:, : self.num_own] <= self._reach
            np.add.at(found[leaves.images], leaves.image, near.astype(int))
        return found

    def _placed(self, trees: Trees, among: Array) -> Iterator[_Placed]:
        for start in range(0, len(trees), _CHUNK):
            some = slice(start, start + _CHUNK)
            image, child = np.nonzero(among[some])
            places = trees.places[some][image, child]
            apart = places[:, np.newaxis] - self._centres[some][image]
            distances = np.linalg.norm(apart, axis=-1)
            on = distances <= self._on
            if self._masks is not None:
                on = _lie_on(self._masks[some], image, places)
            yield _Placed(some, image, child, distances, on)


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
    known = KnownParts(before, parts, None, reach, reach)
    same = (known.hits(before) > 0) == (known.hits(after) > 0)
    return float(np.mean(np.all(same, axis=1)))


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

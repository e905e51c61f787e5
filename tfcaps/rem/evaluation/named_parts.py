"""Measures whether the types of a tree's leaves name the parts under them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.rem.evaluation import agreement
from tfcaps.rem.evaluation.known_parts import KnownParts, Leaves, known_parts
from tfcaps.rem.evaluation.named_parts_report import USED_SHARE, NamedParts
from tfcaps.rem.parse.trees import Trees

Array = NDArray[Any]

_CONSISTENT = 0.8  # of the images that show a type


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
    """Returns how well the types of leaves name the parts under them.

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
    bits = agreement.entropy(leaves)
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
                    agreement.entropy(np.bincount(sets[trees.predicted == j]))
                    for j in np.unique(trees.predicted)
                ]
            )
        ),
        distinct_trees=int(sets.max()) + 1,
    )


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
            "information": agreement.mutual_information(table) if told else 0.0,
            "rand_index": agreement.adjusted_rand_index(table) if told else 0.0,
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

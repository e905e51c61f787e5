"""Classes traced back, through all capsule layers, to what they are made of."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.ops import Array
from tfcaps.rem.parse.in_tree import in_tree


@dataclasses.dataclass(frozen=True, eq=False)
class ParseTree:
    """The capsules of a network that remain when classes are traced back.

    Attributes:
        activations: For each capsule layer the activations `[n]` of its
            capsules; the last layer is that of the classes.
        roots: The classes that were traced back.
        links: For each layer but the last one its couplings `[n, m]` with the
            next layer, 0 of those that are not in the tree.
    """

    activations: tuple[Array, ...]
    roots: tuple[int, ...]
    links: tuple[Array, ...]

    @property
    def edges(self) -> list[tuple[int, int, int, float]]:
        """Layer, child, parent in the next layer, and coupling of each link."""
        return [
            (layer, int(child), int(parent), float(links[child, parent]))
            for layer, links in enumerate(self.links)
            for child, parent in np.argwhere(links)
        ]

    @property
    def reached(self) -> list[NDArray[np.bool_]]:
        """For each layer which of its capsules `[n]` are in the tree."""
        roots = np.isin(np.arange(len(self.activations[-1])), self.roots)
        return [*(np.any(links, axis=1) for links in self.links), roots]


def traced_back(
    activations: Sequence[ArrayLike],
    couplings: Sequence[ArrayLike],
    roots: Iterable[int],
    thresholds: Sequence[float],
) -> ParseTree:
    """Returns the tree of some classes, see `Trees.parse_tree`.

    Each of `couplings` `[n, m]` lies between two layers of `activations` `[n]`,
    and has one of the `thresholds`.
    """
    layers = tuple(np.asarray(a, np.float64) for a in activations)
    between = [np.asarray(c, np.float64) for c in couplings]
    start, classes = tuple(sorted({*map(int, roots)})), len(layers[-1])
    if not start or not 0 <= start[0] <= start[-1] < classes:
        raise ValueError(
            f"`roots` must be classes from 0 to {classes - 1}. Received: "
            f"{list(start)}."
        )
    strong = [in_tree(c, t) for c, t in zip(between, thresholds, strict=True)]
    links: list[Array] = []
    parents = np.isin(np.arange(classes), start)
    for layer in reversed(range(len(between))):
        followed = strong[layer] & parents
        if layer:
            followed &= strong[layer - 1].any(axis=0)[:, None]
        links.insert(0, np.where(followed, between[layer], 0.0))
        parents = followed.any(axis=1)
    return ParseTree(layers, start, tuple(links))

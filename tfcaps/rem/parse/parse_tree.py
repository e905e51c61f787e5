"""Classes traced back, through all capsule layers, to what they are made of."""

import dataclasses
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.rem.parse.in_tree import in_tree

Array = NDArray[Any]


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


def parse_tree(
    activations: Sequence[ArrayLike],
    couplings: Sequence[ArrayLike],
    roots: Iterable[int],
    thresholds: float | Sequence[float] | None = None,
) -> ParseTree:
    """Traces classes back to the capsules that they are made of.

    From the classes in `roots` down, a link is followed to each child

    - whose coupling exceeds the threshold, and
    - which is itself a parent of at least one such link (the in-degree rule),
      or in the first layer.

    Args:
        activations: For each capsule layer its activations `[n]`.
        couplings: For each but the last one its couplings `[n, m]` with the
            next layer.
        roots: Classes to trace back.
        thresholds: Float, or one for each of `couplings`. What couplings must
            exceed. Defaults to 1/J of a layer of J parents.

    Example:

    >>> couplings = [[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]]
    >>> tree = parse_tree([[1.0, 0.2, 0.8], [0.1, 0.9]], [couplings], [1])
    >>> tree.edges
    [(0, 2, 1, 0.7)]

    References:
        - "Capsule Networks Do Not Need to Model Everything", section 3.2
        - Mitterreiter, Koch, Giesen, Laue, 2023, "Why capsule neural networks
          do not scale"
    """
    layers = tuple(np.asarray(a, np.float64) for a in activations)
    between = [np.asarray(c, np.float64) for c in couplings]
    start = tuple(sorted({int(root) for root in roots}))
    sizes = [a.shape for a in layers]
    shapes = [c.shape for c in between]
    if not between or shapes != [(*i, *j) for i, j in pairwise(sizes)]:
        raise ValueError(
            "There must be activations [n] of two or more layers, and "
            "couplings [n, m] between each and the next. Received: "
            f"activations of shapes {sizes}, couplings of shapes {shapes}."
        )
    classes = len(layers[-1])
    if not start or not 0 <= start[0] <= start[-1] < classes:
        raise ValueError(
            f"`roots` must be classes from 0 to {classes - 1}. Received: "
            f"{list(start)}."
        )
    if thresholds is None:
        thresholds = [1.0 / c.shape[1] for c in between]
    least = np.broadcast_to(thresholds, len(between))
    strong = [
        in_tree(c, bound) for c, bound in zip(between, least, strict=True)
    ]
    links: list[Array] = []
    parents = np.isin(np.arange(classes), start)
    for layer in reversed(range(len(between))):
        followed = strong[layer] & parents
        if layer:
            followed &= strong[layer - 1].any(axis=0)[:, None]
        links.insert(0, np.where(followed, between[layer], 0.0))
        parents = followed.any(axis=1)
    return ParseTree(layers, start, tuple(links))

"""Parse trees of fully connected capsules, found by backtracking."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfcaps.rem.parse.in_tree import in_tree

Array = NDArray[Any]


class Edge(NamedTuple):
    """A connection of a parse tree.

    Attributes:
        layer: The child's capsule layer, from 0, that of the primary capsules.
        child: Its number in this layer.
        parent: The parent's number in the next layer.
        coupling: How strongly they are coupled.
    """

    layer: int
    child: int
    parent: int
    coupling: float


@dataclasses.dataclass(frozen=True)
class ParseTree:
    """The capsules of a network that remain when classes are traced back.

    Attributes:
        activations: For each capsule layer the activations `[n]` of its
            capsules; the last layer is that of the classes.
        roots: The classes that were traced back.
        edges: The connections, layer by layer from the first one.
    """

    activations: tuple[Array, ...]
    roots: tuple[int, ...]
    edges: tuple[Edge, ...]

    @property
    def reached(self) -> tuple[NDArray[np.bool_], ...]:
        """For each layer which of its capsules `[n]` are in the tree."""
        reached = tuple(np.zeros(len(a), bool) for a in self.activations)
        reached[-1][list(self.roots)] = True
        for edge in self.edges:
            reached[edge.layer][edge.child] = True
        return reached

    def to_dict(self) -> dict[str, Any]:
        """Returns everything, ready for JSON."""
        return {
            "activations": [a.tolist() for a in self.activations],
            "roots": list(self.roots),
            "edges": [edge._asdict() for edge in self.edges],
        }


def parse_tree(
    activations: Sequence[ArrayLike],
    couplings: Sequence[ArrayLike],
    roots: Iterable[int],
    *,
    threshold: float | Sequence[float] | None = None,
) -> ParseTree:
    """Traces classes back to the capsules that they are made of.

    From the classes in `roots` down, an edge is followed to each child

    - whose coupling exceeds the threshold, which is the uniform coupling 1/J of
      a layer of J parents unless given, and
    - which is itself a parent of at least one such edge (the in-degree rule),
      or in the first layer.

    Where all couplings are uniform, there are no edges.

    Args:
        activations: For each capsule layer its activations `[n]`.
        couplings: For each but the last one its couplings `[n, m]` with the
            next layer.
        roots: Classes to trace back.
        threshold: Float, or one for each of `couplings`. What couplings must
            exceed. Defaults to 1/J.

    Raises:
        ValueError: If the shapes do not fit, or there is no such class.

    Example:

    >>> couplings = [[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]]
    >>> tree = parse_tree([[1.0, 0.2, 0.8], [0.1, 0.9]], [couplings], [1])
    >>> tree.edges
    (Edge(layer=0, child=2, parent=1, coupling=0.7),)

    References:
        - "Capsule Networks Do Not Need to Model Everything", section 3.2
        - Mitterreiter, Koch, Giesen, Laue, 2023, "Why capsule neural networks
          do not scale"
    """
    layers = tuple(np.asarray(a, np.float64) for a in activations)
    between = [np.asarray(c, np.float64) for c in couplings]
    start = tuple(sorted({int(root) for root in roots}))
    _check(layers, between, start)
    least: Any = [1.0 / c.shape[1] for c in between]
    if threshold is not None:
        least = np.broadcast_to(threshold, len(between))
    strong = [
        in_tree(c, bound) for c, bound in zip(between, least, strict=True)
    ]
    edges: list[Edge] = []
    parents = np.array(start, int)
    for layer in reversed(range(len(between))):
        followed = np.zeros_like(strong[layer])
        followed[:, parents] = strong[layer][:, parents]
        if layer:
            followed &= strong[layer - 1].any(axis=0)[:, None]
        pairs = np.argwhere(followed).tolist()
        edges[:0] = [
            Edge(layer, i, j, float(between[layer][i, j])) for i, j in pairs
        ]
        parents = np.flatnonzero(followed.any(axis=1))
    return ParseTree(layers, start, tuple(edges))


def _check(
    activations: Sequence[Array],
    couplings: Sequence[Array],
    roots: Sequence[int],
) -> None:
    sizes = [a.shape for a in activations]
    expected = [(*i, *j) for i, j in zip(sizes, sizes[1:], strict=False)]
    shapes = [c.shape for c in couplings]
    if not couplings or shapes != expected:
        raise ValueError(
            "There must be activations [n] of two or more layers, and "
            "couplings [n, m] between each and the next. Received: "
            f"activations of shapes {sizes}, couplings of shapes {shapes}."
        )
    if not all(np.isfinite(a).all() for a in (*activations, *couplings)):
        raise ValueError(
            "Activations and couplings must be finite. Received: NaN or "
            "infinity. Look at the weights of the network, and at its images."
        )
    classes = len(activations[-1])
    if not roots or not 0 <= roots[0] <= roots[-1] < classes:
        raise ValueError(
            f"`roots` must be classes from 0 to {classes - 1}. Received: "
            f"{list(roots)}."
        )

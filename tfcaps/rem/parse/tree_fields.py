"""Finds the part of an image that each child of its tree sees."""

import dataclasses
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from tfcaps.rem.parse.layer_levels import Levels
from tfcaps.rem.parse.parse_tree import ParseTree
from tfcaps.rem.parse.parse_trees import ParseTrees
from tfcaps.rem.parse.receptive_fields import (
    ReceptiveFields,
    receptive_fields,
)

Array = NDArray[Any]


@dataclasses.dataclass(frozen=True)
class TreeFields:
    """The children in the tree of an image, the strongest first.

    How strong a child is, is coupling times activation.

    Attributes:
        predicted: The class of the tree.
        length: Its length.
        children: Which children are in the tree, `[n]` ints, counted as in
            couplings.
        couplings: Their couplings with the class, `[n]`.
        activations: Their activations, `[n]`.
        fields: What every child of the model sees.
    """

    predicted: int
    length: float
    children: NDArray[np.int64]
    couplings: Array
    activations: Array
    fields: ReceptiveFields

    @property
    def boxes(self) -> NDArray[np.int64]:
        """What they see, `[n, 4]`, see `ReceptiveFields.boxes`."""
        return self.fields.boxes[self.children]

    @property
    def types(self) -> NDArray[np.int64]:
        """Their types, `[n]`."""
        return self.children % self.fields.grid[2]

    @property
    def size(self) -> float:
        """Share of the children that are in the tree."""
        return len(self.children) / len(self.fields.boxes)


def tree_fields(
    model: keras.Model,
    images: Array,
    *,
    levels: Levels | None = None,
    mode: str = "midtread",
    batch_size: int = 256,
) -> list[TreeFields]:
    """Returns, for each image, the children of its tree and what they see.

    These are the children of the class capsules whose coupling with the
    predicted class exceeds the uniform one, 1/J, as in `ParseTrees`.

    Args:
        model: As in `receptive_fields`.
        images: Its input `[n, h, w, c]`, or a data set of them as in
            `tfcaps.rem.evaluate`, whose labels are not looked at.
        levels: Levels to which couplings are rounded, see `quantize_couplings`.
            Defaults to `None`, as they are.
        mode: As in `quantize_couplings`. Defaults to `"midtread"`.
        batch_size: Int. Most images in a batch. Defaults to `256`.

    Raises:
        ValueError: As in `receptive_fields` and `quantize_couplings`.

    Example:

    >>> from tfcaps.models import dr_capsnet
    >>> model = dr_capsnet((12, 12, 1), 3, kernel_size=5, primary_kernel_size=3)
    >>> (tree,) = tree_fields(model, np.zeros((1, 12, 12, 1), "float32"))
    >>> tree.children, tree.fields.size  # nothing is seen: an empty tree
    (array([], dtype=int64), (7, 7))
    """
    fields = receptive_fields(model)
    trees = ParseTrees(model, levels=levels, mode=mode, batch_size=batch_size)
    return [_of_tree(tree, fields) for tree in trees.each(images)]


def _of_tree(tree: ParseTree, fields: ReceptiveFields) -> TreeFields:
    (predicted,) = tree.roots
    below, classes = tree.activations[-2:]
    last = len(tree.activations) - 2
    edges = [edge for edge in tree.edges if edge.layer == last]
    children = np.array([edge.child for edge in edges], np.int64)
    couplings = np.array([edge.coupling for edge in edges], np.float64)
    activations = below[children]
    order = np.argsort(-couplings * activations, kind="stable")
    return TreeFields(
        predicted,
        float(classes[predicted]),
        children[order],
        couplings[order],
        activations[order],
        fields,
    )

"""A model's layer that tells whether classes are lost without their trees."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps.layers import CompactCaps
from tfcaps.ops import Tensor, towards_class
from tfcaps.rem.trees.with_couplings import TREE_MARGIN


class LostWithoutTree(keras.layers.Layer):
    """Tells whether each sample's class is lost when its tree is silenced.

    The tree has the children that are coupled with the longest class by more
    than the uniform coupling. They get pose and activation 0, and the layer
    routes again. The class is lost if it is no longer the longest, or less than
    half as long.

    Args:
        layer: A `ClassCaps`. It is called with other children.
        parents: Int. How many parents the children choose from.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        children: Child poses, what the layer takes.
        lengths: Class lengths `[b, j]`.
        couplings: Couplings `[b, i, j]`.
        activations: Child activations, if the layer takes them.

    Output shape:
        `[b]`, bool.
    """

    def __init__(self, layer: Any, parents: int, **kwargs: Any):
        super().__init__(**{"dtype": layer.dtype_policy, **kwargs})
        self.layer = layer
        self._threshold = tree_threshold(layer, parents)

    def call(
        self,
        children: Tensor,
        lengths: Tensor,
        couplings: Tensor,
        activations: Tensor | None = None,
    ) -> Tensor:
        classes = ops.argmax(lengths, axis=-1)
        tree = towards_class(couplings, classes) > self._threshold
        # One more child, which is in no tree.
        tree = ops.pad(ops.cast(tree, "int32"), [[0, 0], [0, 1]]) > 0
        taken = taken_children(self.layer, children.shape, tree.shape[-1] - 1)
        tree = ops.take(tree, taken, axis=-1)
        tree = ops.reshape(tree, (-1, *children.shape[1:-1]))
        poses = ops.where(ops.expand_dims(tree, -1), 0.0, children)
        poses = ops.cast(poses, children.dtype)
        if activations is not None:
            zero = ops.zeros_like(activations)
            activations = ops.where(tree, zero, activations)
        _, without = self.layer(poses, activations, return_activations=True)
        same = ops.argmax(without, axis=-1) == classes
        before, now = (towards_class(x, classes) for x in (lengths, without))
        half = ops.cast(now, "float32") >= 0.5 * ops.cast(before, "float32")
        return ops.logical_not(ops.logical_and(same, half))

    def compute_output_spec(self, children: Any, *_: Any, **__: Any) -> Any:
        return keras.KerasTensor((children.shape[0],), dtype="bool")


def tree_threshold(layer: Any, parents: int) -> float:
    """Returns the coupling above which a child is in a tree.

    That is the uniform coupling, or its rounded value if that is larger, plus a
    margin for noise.
    """
    uniform = 1.0 / parents
    if layer.routing.levels is not None:
        rounded = layer.routing.rounded(ops.convert_to_tensor([uniform]))
        uniform = max(uniform, float(ops.convert_to_numpy(rounded)[0]))
    return uniform + TREE_MARGIN


def taken_children(
    layer: Any, input_shape: tuple[int | None, ...], children: int
) -> NDArray[np.int32]:
    """Returns which of all children each child of a layer's input is.

    Children that the layer does not take have the number `children`. Only
    `CompactCaps` does not take all in their order.

    Args:
        layer: A routed layer.
        input_shape: Shape `[b, ..., k]` of the poses that it takes.
        children: Int. How many children its couplings have.
    """
    number = math.prod(size or 1 for size in input_shape[1:-1])
    if not isinstance(layer, CompactCaps):
        return np.arange(number, dtype="int32")
    rows = math.prod(layer.grid[:-1]) if layer.counts_types else 1
    taken = np.full((rows, number // rows), children, "int32")
    first = np.arange(rows)[:, None] * (children // rows)
    taken[:, list(layer.sources)] = first + np.array(layer.origins)
    return taken.reshape(-1)

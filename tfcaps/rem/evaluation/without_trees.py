"""A model's layer that tells whether classes are lost without their trees."""

from typing import Any

import keras
from keras import ops

from tfcaps.ops import Tensor, as_float32, towards_class
from tfcaps.rem.parse.in_tree import in_tree, tree_threshold
from tfcaps.rem.parse.with_couplings import of_inputs


class LostWithoutTree(keras.layers.Layer):
    """Tells whether each sample's class is lost when its tree is silenced.

    The tree is that of the longest class, see `in_tree`. Its children get
    pose and activation 0, and the layer routes again. The class is lost if it
    is no longer the longest, or less than half as long.

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
        self._threshold = tree_threshold(layer.routing, parents)

    def call(
        self,
        children: Tensor,
        lengths: Tensor,
        couplings: Tensor,
        activations: Tensor | None = None,
    ) -> Tensor:
        classes = ops.argmax(lengths, axis=-1)
        towards = as_float32(towards_class(couplings, classes))
        tree = in_tree(towards, self._threshold)
        tree = of_inputs(tree, self.layer, children.shape)
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

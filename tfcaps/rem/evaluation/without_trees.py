"""A model's layer that tells whether classes are lost without their trees."""

from typing import Any

import keras
from keras import ops

from tfcaps.ops import Tensor, towards_class
from tfcaps.rem.parse.with_couplings import TREE_MARGIN, of_inputs


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

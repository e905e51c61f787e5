"""Calls of routed layers that also return couplings, in functional models."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps.layers import CompactCaps
from tfcaps.ops import Tensor, as_float32, towards_class
from tfcaps.rem.parse.in_tree import in_tree, tree_threshold


def taken_children(
    layer: Any, input_shape: tuple[int | None, ...], children: int
) -> NDArray[np.int32]:
    """Returns the number, among all children, of each child of an input.

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


def voting_children(
    layer: Any, input_shape: tuple[int | None, ...], children: int
) -> NDArray[np.bool_]:
    """Returns a mask of the children that pruning has left a vote, `[i]`.

    All of them, where a routing does not ignore children that vote zero.

    Args:
        layer: A layer of class capsules.
        input_shape: Shape `[b, ..., k]` of the poses that it takes.
        children: Int. How many children its couplings have.
    """
    taken = taken_children(layer, input_shape, children)
    if layer.can_be_silent and layer.share != "all":
        matrices = ops.convert_to_numpy(layer.transformation)
        votes = np.any(matrices != 0, axis=(-3, -2, -1))
        if isinstance(layer, CompactCaps):
            votes = np.ones(1, bool)  # others are not taken
        taken = taken[np.resize(votes, len(taken))]
    voting = np.zeros(children + 1, bool)
    voting[taken] = True
    return voting[:children]


def of_inputs(
    tree: Tensor, layer: Any, input_shape: tuple[int | None, ...]
) -> Tensor:
    """Returns a mask of the children of a layer's input that are in a tree.

    Args:
        tree: Bool `[b, i]`, whether a child is, for all children.
        layer: A routed layer.
        input_shape: Shape `[b, ..., k]` of the poses that it takes.

    Returns:
        Bool tensor `[b, ...]`, False for children that the layer does not take.
    """
    if isinstance(layer, CompactCaps):
        # One more child, which is in no tree.
        tree = ops.pad(ops.cast(tree, "int32"), [[0, 0], [0, 1]]) > 0
        taken = taken_children(layer, input_shape, tree.shape[-1] - 1)
        tree = ops.take(tree, taken, axis=-1)
    return ops.reshape(tree, (-1, *input_shape[1:-1]))


def with_couplings(layer: Any, args: Any, kwargs: Any) -> tuple[Any, Tensor]:
    """Calls a routed layer, and returns its outputs and its couplings."""
    *outputs, couplings = WithCouplings(layer)(*args, **kwargs)
    return (tuple(outputs) if outputs[1:] else outputs[0]), couplings


@keras.saving.register_keras_serializable(package="tfcaps")
class WithCouplings(keras.layers.Layer):
    """Calls a routed layer and also returns its couplings.

    Keras 3.15 builds no functional model in which a layer that returned one
    output before returns two, so a layer of its own makes the second call.

    Args:
        layer: A routed layer.
        counterfactual: Bool. Return one more output, the last one, which
            `tfcaps.losses.CounterfactualLoss` takes: `[b, 3, j]`, the lengths
            of all parents without the tree of the longest one, or with that
            tree alone, for which the layer routes again (third row), and which
            of the two it was: the longest parent as a one-hot row, times the
            number of images that this one stands for, in the first row or in
            the second. Only the first half of a batch is routed again, in turn
            for the one and for the other; the rest has zeros. Silenced children
            have the pose and the activation 0 for two images, and the mean pose
            and activation of the batch for the next two, so that the network
            learns to do without them whatever takes their place. Needs a
            `tfcaps.layers.ClassCaps`. Defaults to `False`.
        **kwargs: Arguments of `keras.layers.Layer`.
    """

    # By which `tfcaps.graphs` finds the layer inside.
    shows_couplings = True

    def __init__(self, layer: Any, counterfactual: bool = False, **kwargs: Any):
        super().__init__(**{"dtype": layer.dtype_policy, **kwargs})
        self.layer = layer
        self.counterfactual = counterfactual

    def call(
        self, inputs: Tensor, activations: Tensor | None = None, **kwargs: Any
    ) -> Any:
        arguments = _also(activations, kwargs)
        if not self.counterfactual:
            return self.layer(inputs, **arguments)
        poses, lengths, couplings = self.layer(
            inputs, **{**arguments, "return_activations": True}
        )
        outputs = [poses]
        if kwargs.get("return_activations"):
            outputs.append(lengths)
        asked = self._asked(inputs, activations, couplings, lengths)
        return (*outputs, couplings, asked)

    def _asked(
        self,
        inputs: Tensor,
        activations: Tensor | None,
        couplings: Tensor,
        lengths: Tensor,
    ) -> Tensor:
        batch, parents = ops.shape(inputs)[0], couplings.shape[-1]
        count = (batch + 1) // 2
        places = ops.arange(count)
        is_alone, is_mean = places % 2 == 1, places // 2 % 2 == 1
        longest = ops.argmax(lengths[:count], axis=-1)
        towards = as_float32(towards_class(couplings[:count], longest))
        threshold = tree_threshold(self.layer.routing, parents)
        # Constants: neither what is in a tree nor a mean has a gradient.
        tree = of_inputs(in_tree(towards, threshold), self.layer, inputs.shape)
        stays = ops.equal(tree, _rows(is_alone, tree))

        def silence(tensor: Tensor, stays: Tensor) -> Tensor:
            mean = ops.stop_gradient(ops.mean(tensor, axis=0, keepdims=True))
            other = mean * ops.cast(_rows(is_mean, tensor), tensor.dtype)
            return ops.where(stays, tensor[:count], other)

        poses = silence(inputs, ops.expand_dims(stays, -1))
        if activations is not None:
            activations = silence(activations, stays)
        _, left = self.layer(poses, activations, return_activations=True)
        return _answers(as_float32(left), longest, is_alone, batch)

    def compute_output_spec(
        self, inputs: Any, activations: Any = None, **kwargs: Any
    ) -> Any:
        outputs = self.layer.compute_output_spec(
            inputs, **_also(activations, kwargs)
        )
        if not self.counterfactual:
            return outputs
        batch, _, parents = outputs[-1].shape
        spec = keras.KerasTensor((batch, 3, parents), dtype="float32")
        return (*outputs, spec)

    def get_config(self) -> dict[str, Any]:
        layer = keras.saving.serialize_keras_object(self.layer)
        config = {"layer": layer, "counterfactual": self.counterfactual}
        return {**super().get_config(), **config}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "WithCouplings":
        layer = keras.saving.deserialize_keras_object(config["layer"])
        return cls(**{**config, "layer": layer})


def _also(activations: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns call arguments that ask for couplings."""
    arguments = {**kwargs, "return_couplings": True}
    if activations is not None:
        arguments["activations"] = activations
    return arguments


def _rows(vector: Tensor, like: Tensor) -> Tensor:
    """Returns a number for each image, to be used beside `like`."""
    return ops.reshape(vector, (-1, *[1] * (len(like.shape) - 1)))


def _answers(
    lengths: Tensor, longest: Tensor, is_alone: Tensor, batch: Any
) -> Tensor:
    """Returns `[b, 3, j]`, with zeros for images that were not routed again."""
    count, parents = ops.shape(lengths)[0], lengths.shape[-1]
    kinds = ops.stack([ops.logical_not(is_alone), is_alone], axis=1)
    kinds = ops.cast(kinds, lengths.dtype)
    # A batch of one image has none for the second question.
    stand_for = ops.cast(batch, lengths.dtype) / ops.maximum(
        ops.sum(kinds, axis=0), 1.0
    )
    present = ops.one_hot(longest, parents, dtype=lengths.dtype)
    asked = ops.expand_dims(kinds * stand_for, -1) * ops.expand_dims(present, 1)
    answers = ops.concatenate([asked, ops.expand_dims(lengths, 1)], axis=1)
    rest = ops.zeros((batch - count, 3, parents), lengths.dtype)
    return ops.concatenate([answers, rest], axis=0)


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

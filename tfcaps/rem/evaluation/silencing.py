"""Silences children of routed layers, and routes the others again."""

from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from tfcaps.graphs import cut, encoder, routed_layers
from tfcaps.layers import Length
from tfcaps.rem.batches import NO_SAMPLES, labelled_batches, predict
from tfcaps.rem.finite import check_weights
from tfcaps.rem.parse.trees import Trees, connected_calls
from tfcaps.rem.parse.trees import trees as trees_of

Array = NDArray[Any]

# Rows of a step have at most about so many votes (numbers), unless the batches
# of the user are larger: 64 MiB in float32.
_VOTES_PER_STEP = 2**24
_MOST_ROWS = 2048
# Steps after which it pays to trace the routing, which takes as long as some.
_EAGER_STEPS = 4


class Silencer:
    """Runs a network once up to the children, and routes these repeatedly.

    `children` are the inputs of the layer, a list of arrays: poses,
    activations if they are an input, and other tensors from below.

    Attributes:
        model: The network from images to lengths.
        most_rows: Int. Rows that may be routed in a step.
    """

    def __init__(self, model: keras.Model):
        routed_layers(model)  # their absence is the clearer error
        self.model = encoder(model)
        check_weights(self.model.weights)
        call = connected_calls(self.model)[1][-1]
        self._below, above = cut(self.model, call.layer)
        self._has_activations = call.activations is not None
        self._shape = tuple(above.inputs[0].shape)
        children, parents = map(int, call.couplings.shape[1:])
        lengths = above.outputs[0]
        if len(lengths.shape) != 2:
            lengths = Length(dtype="float32")(lengths)
        self._lengths = keras.Model(above.inputs, lengths)
        self._steps = 0
        numbers = children * parents * int(call.poses.shape[-1])
        self.most_rows = max(1, min(_MOST_ROWS, _VOTES_PER_STEP // numbers))

    def children(self, images: Array, batch_size: int) -> list[Array]:
        """Returns what the routed layers take of images, see the class."""
        parts = [
            keras.tree.flatten(predict(self._below, images[part]))
            for part in parts_of(len(images), batch_size)
        ]
        each = zip(*parts, strict=True)
        return [np.concatenate(arrays).astype("float32") for arrays in each]

    def silence(
        self,
        children: list[Array],
        silenced: Array,
        values: list[Array] | None = None,
    ) -> Array:
        """Returns the lengths `[b, j]` without the silenced children `[b, i]`.

        They get `values`, which are the same for all images, or 0.
        """
        self._steps += 1
        if self._steps == _EAGER_STEPS and keras.backend.backend() != "jax":
            self._lengths.compile(jit_compile=False)
        silenced = np.reshape(silenced, (-1, *self._shape[1:-1]))
        replaced = list(children)
        for k in range(1 + self._has_activations):
            value = 0.0 if values is None else values[k]
            where = silenced[..., None] if k == 0 else silenced
            replaced[k] = np.where(where, value, children[k]).astype("float32")
        return np.asarray(predict(self._lengths, replaced), "float32")


def images_and_trees(
    model: keras.Model,
    dataset: Any,
    trees: Trees | None,
    samples: int,
    batch_size: int,
) -> tuple[Array, Trees]:
    """Returns the first images of a data set, and their trees.

    Trees that are known already are those of the first images, in this order.
    """
    found: list[Array] = []
    batches, _ = labelled_batches(dataset, batch_size, model, need_labels=False)
    for batch, _ in batches:
        found.append(batch)
        if sum(map(len, found)) >= samples:
            break
    if not any(map(len, found)):
        raise ValueError(NO_SAMPLES)
    images = np.concatenate(found)[:samples]
    if trees is None:
        parts = (images[part] for part in parts_of(len(images), batch_size))
        return images, trees_of(model, parts, couplings=False)
    trees = trees[:samples]
    return trees.match(images), trees


def parts_of(count: int, size: int) -> list[slice]:
    """Returns slices of so many rows, which together are all."""
    return [slice(start, start + size) for start in range(0, count, size)]


def of_class(lengths: Array, classes: Array) -> Array:
    """Returns the length `[b]` of one class of each sample."""
    return np.take_along_axis(lengths, classes[:, None], axis=-1)[:, 0]

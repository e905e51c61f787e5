"""Silences children of routed layers, and routes the others again."""

from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np

from tfcaps.finite import check_weights
from tfcaps.graphs import classifier, cut, routed_layers
from tfcaps.layers import Length
from tfcaps.ops import Array, parts_of
from tfcaps.rem.batches import NO_SAMPLES, labelled_batches, predict
from tfcaps.rem.parse.trees import Trees, connected_calls
from tfcaps.rem.parse.trees import trees as trees_of

# Rows of a step have at most about so many votes (numbers), unless the batches
# of the user are larger: 64 MiB in float32.
_VOTES_PER_STEP = 2**24
_MOST_ROWS = 2048
# Steps after which it pays to trace the routing, which takes as long as some.
_EAGER_STEPS = 4


class Silencer:
    """Runs a network once up to the children, and routes these repeatedly."""

    def __init__(self, model: keras.Model):
        routed_layers(model)  # their absence is the clearer error
        self.model = classifier(model)
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
        self._rows = max(1, min(_MOST_ROWS, _VOTES_PER_STEP // numbers))

    def take(self, batches: Iterable[Array]) -> int:
        """Keeps what the routed layer takes of images, and its means.

        Returns how many images the batches have.
        """
        parts = []
        for batch in batches:
            parts.append(keras.tree.flatten(predict(self._below, batch)))
            self._rows = max(len(batch), self._rows)
        # Poses, activations if they are an input, and others from below.
        self._children = [
            np.concatenate(arrays).astype("float32")
            for arrays in zip(*parts, strict=True)
        ]
        # In float64, whose result no batch size changes.
        self._means = [
            x.mean(axis=0, dtype="float64").astype("float32")
            for x in self._children
        ]
        return len(self._children[0])

    def lengths(
        self,
        rows: Array,
        silenced: Array,
        *,
        at_mean: bool = False,
        bar: Any = None,
    ) -> Array:
        """Returns the lengths `[b, j]` of images `rows` without some children.

        These, bool `[b, i]`, get 0, or their means over the images.
        """
        found = [np.zeros((0, self._lengths.output.shape[-1]), "float32")]
        for part in parts_of(len(rows), self._rows):
            self._steps += 1
            if self._steps == _EAGER_STEPS and keras.backend.backend() != "jax":
                self._lengths.compile(jit_compile=False)
            where = np.reshape(silenced[part], (-1, *self._shape[1:-1]))
            children = [x[rows[part]] for x in self._children]
            for k in range(1 + self._has_activations):
                value = self._means[k] if at_mean else np.float32(0.0)
                each = where[..., None] if k == 0 else where
                children[k] = np.where(each, value, children[k])
            found.append(np.asarray(predict(self._lengths, children)))
            if bar is not None:
                bar.add(len(found[-1]))
        return np.concatenate(found).astype("float32")


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
    images = np.concatenate([*first(model, dataset, samples, batch_size)])
    if trees is None:
        batches = in_batches(images, batch_size)
        return images, trees_of(model, batches, couplings=False)
    trees = trees[:samples]
    return trees.match(images), trees


def first(
    model: keras.Model, dataset: Any, samples: int, batch_size: int
) -> Iterator[Array]:
    """Yields the first images of a data set, batch by batch."""
    count = 0
    batches, _ = labelled_batches(dataset, batch_size, model, need_labels=False)
    for batch, _ in batches:
        yield batch[: samples - count]
        count += len(batch)
        if count >= samples:
            break
    if not count:
        raise ValueError(NO_SAMPLES)


def in_batches(images: Array, size: int) -> Iterator[Array]:
    """Yields images, so many at once."""
    return (images[part] for part in parts_of(len(images), size))


def of_class(lengths: Array, classes: Array) -> Array:
    """Returns the length `[b]` of one class of each sample."""
    return np.take_along_axis(lengths, classes[:, None], axis=-1)[:, 0]

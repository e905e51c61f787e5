"""Removes silent children from the layers of their parents."""

import abc
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfcaps.layers import CompactCaps
from tfcaps.rem.compaction.units import Mask, Rule, Shape, Values, any_along


class _Children(Rule):
    """A layer of parents; its children may be silent."""

    shrinks = False

    @abc.abstractmethod
    def _votes(self, inputs: Values) -> Mask:
        """Returns which of the children vote, `[positions, children]`.

        Children are counted as the layer's matrices are.
        """

    def needs(self, wanted: Mask, inputs: Values) -> Mask:
        return any_along(self._votes(inputs), 0)[: len(inputs)]

    def _weights(
        self, kept: Mask, transformation: NDArray[Any], positions: int
    ) -> list[Any]:
        """Returns all weights, those of each child for the kept ones."""
        layer = self.layer
        children = positions * len(kept)
        kinds = layer.routing.weights(children, layer._num_parents, layer.dim)
        weights = [transformation]
        for name in layer._routing_weights:
            array = self._array(getattr(layer, name))
            if kinds[name].per_child:
                rest = array.shape[1:]
                array = array.reshape(positions, -1, *rest)[:, kept]
                array = array.reshape(-1, *rest)
            weights.append(array)
        return weights


class ClassChildren(_Children):
    """ClassCaps."""

    def __init__(self, layer: Any, shape: Shape):
        super().__init__(layer)
        self.grid = layer.children_shape(shape)

    def _votes(self, inputs: Values) -> Mask:
        weight = self._array(self.layer.transformation)
        votes = any_along(weight, 1, 2, 3)
        if len(inputs):
            votes = votes.reshape(-1, len(inputs)) & (inputs != 0)
        return np.atleast_2d(votes)

    def shrunk(
        self, taken: Mask, wanted: Mask, inputs: Values
    ) -> tuple[Any, list[Any]]:
        layer = self.layer
        votes = self._votes(inputs)
        if not len(taken):
            taken = np.ones(votes.shape[1], bool)
        if votes.all() and taken.all():
            return self._changed(), layer.get_weights()
        if not votes.any():
            votes[0, np.argmax(taken)] = True
        sources = np.flatnonzero(votes[:, taken])
        kept = votes.ravel()
        config = {
            **layer.get_config(),
            "grid": self.grid,
            "sources": [int(source) for source in sources],
            "origins": [int(origin) for origin in np.flatnonzero(kept)],
        }
        transformation = self._array(layer.transformation)[kept]
        positions = math.prod(self.grid) // len(kept)
        weights = self._weights(kept, transformation, positions)
        return CompactCaps.from_config(config), weights


class WindowChildren(_Children):
    """ConvCaps, whose windows all have the same types."""

    def _votes(self, inputs: Values) -> Mask:
        weight = self._array(self.layer.transformation)
        return any_along(weight, 0, 1, 3, 4, 5)[None] & (inputs != 0)

    def shrunk(
        self, taken: Mask, wanted: Mask, inputs: Values
    ) -> tuple[Any, list[Any]]:
        transformation = self._array(self.layer.transformation)[:, :, taken]
        positions = math.prod(self.layer.kernel_size)
        weights = self._weights(taken, transformation, positions)
        return self._changed(), weights

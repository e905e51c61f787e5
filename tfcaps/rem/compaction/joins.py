"""The units of layers that join or rearrange maps, and of whole routed maps."""

import math
from typing import Any

import numpy as np

from tfcaps.rem.compaction.routed import Routed
from tfcaps.rem.compaction.units import (
    Ids,
    Mask,
    Shape,
    Slice,
    Tied,
    Values,
    any_along,
)


class Sum(Tied):
    """Add: a unit of the sum is made of the same unit of each input."""

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        return [np.sum(inputs, axis=0)]

    def ties(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        return [(ids, outputs[0]) for ids in inputs]


class Joined(Tied):
    """Concatenate along the axis of units."""

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        return [np.concatenate(inputs)]

    def ties(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        return [(np.concatenate(inputs), outputs[0])]


class Flattened(Tied):
    """Reshape of a capsule map `[b, h, w, t, k]` to capsules `[b, i, k]`."""

    def __init__(self, layer: Any, shape: Shape):
        super().__init__(layer)
        self.positions = (shape[1] or 1) * (shape[2] or 1)

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        return [np.tile(inputs[0], self.positions)]

    def ties(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        return [(np.tile(inputs[0], self.positions), outputs[0])]

    def shrunk(
        self, taken: list[Mask], wanted: list[Mask], inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        components = self.layer.target_shape[-1]
        return self._changed(target_shape=(-1, components)), []


class AsCapsules(Tied):
    """Reshape of a map `[b, h, w, c]` to capsules of one component."""

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        return [np.where(inputs[0] == 0, 0.0, np.nan)]

    def ties(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        return [(inputs[0], outputs[0])]

    def shrunk(
        self, taken: list[Mask], wanted: list[Mask], inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        rows, columns, *_ = self.layer.target_shape
        shape = (rows, columns, int(wanted[0].sum()), 1)
        return self._changed(target_shape=shape), []


class WholeMaps(Routed):
    """ConvCaps3D, whose parents at all positions compete.

    All types of children share the kernel: one that votes zero is a map of
    zeros.
    """

    num_parents = "num_types"

    def __init__(self, layer: Any, shape: Shape):
        super().__init__(layer)
        _, rows, columns, *_ = layer.compute_output_shape(shape)
        self.positions = math.prod((rows, columns))

    def _votes(self, inputs: list[Values]) -> Mask:
        return (inputs[0] != 0)[None]

    def _silent(self) -> Mask:
        layer = self.layer
        votes = any_along(self._array(layer.conv.kernel), 0, 1, 2)
        votes = any_along(votes.reshape(-1, layer.dim), 1)
        if layer.bias is not None:
            votes |= any_along(self._array(layer.bias), 1)
        return ~votes

    def made(self) -> list[Slice]:
        layer = self.layer
        if not self.silent_parents:
            return []
        channels = np.arange(layer.conv.kernel.shape[3])
        slices = [Slice(layer.conv.kernel, 3, channels // layer.dim)]
        if layer.bias is not None:
            slices.append(Slice(layer.bias, 0, np.arange(layer.num_types)))
        return slices

    def shrunk(
        self, taken: list[Mask], wanted: list[Mask], inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        layer, [parents] = self.layer, wanted
        channels = np.repeat(parents, layer.dim)
        weights = [
            array[parents] if variable is layer.bias else array[..., channels]
            for variable, array in zip(
                layer.weights, layer.get_weights(), strict=True
            )
        ]
        config = self._settings(parents, self.positions)
        return type(layer).from_config(config), weights

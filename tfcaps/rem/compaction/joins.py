"""The units of layers that join or rearrange maps, and of parts."""

import math
from typing import Any

import numpy as np

from tfcaps.rem.compaction.routed import Routed
from tfcaps.rem.compaction.units import (
    Convolution,
    Ids,
    Mask,
    Rule,
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


class PartsConvolution(Convolution):
    """PartCaps: a type has places and an activation, and competes with others.

    A type is absent if its presence is 0 in float32, whatever the image.
    """

    _never = -1e4

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        del inputs
        return [None, np.where(self._absent, 0.0, np.nan)]

    def stays(self, sizes: list[int]) -> list[Mask]:
        # A type that no class has still keeps others from its places.
        return [~self._absent for _ in sizes]

    def follows(self, taken: list[Mask], wanted: list[Mask]) -> list[Mask]:
        either = wanted[0] | wanted[1]
        return [either, either]

    def ties(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        return [(outputs[0], outputs[1])]

    def shrunk(
        self, taken: list[Mask], wanted: list[Mask], inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        left_out = np.where(taken[0], 0.0, np.nan_to_num(inputs[0]))
        weights = [self._array(self.layer.hardness)]
        for conv, channels in self._channels(wanted[0]):
            kernel = self._array(conv.kernel)
            bias = self._bias(conv) + left_out @ kernel[0, 0]
            weights.append(kernel[:, :, taken[0]][..., channels])
            weights.append(bias[channels].astype(kernel.dtype))
        return self._changed(num_types=int(wanted[0].sum())), weights

    def made(self) -> list[Slice]:
        conv = self.layer.conv
        units = np.arange(self.layer.num_types)
        return [
            Slice(conv.kernel, 3, units),
            Slice(conv.bias, 0, units, self._never),
        ]

    @property
    def _absent(self) -> Mask:
        conv = self.layer.conv
        absent = ~any_along(self._array(conv.kernel), 0, 1, 2)
        return absent & (self._bias(conv) <= self._never)

    def _channels(self, wanted: Mask) -> list[tuple[Any, Mask]]:
        conv, nothing = self.convs
        return [(conv, wanted), (nothing, np.ones(1, bool))]


class Constellations(Rule):
    """ConstellationCaps: types that are absent need no place in a blueprint.

    Unless a class expects them: then all images lack them.
    """

    def needs(self, wanted: list[Mask], inputs: list[Values]) -> list[Mask]:
        expected = any_along(self._array(self.layer.slots), 1)
        needed = ~(inputs[1] == 0) | expected
        return [needed, needed]

    def stays(self, sizes: list[int]) -> list[Mask]:
        return [np.ones(size, bool) for size in sizes]

    def fixed(self, sizes: list[int]) -> list[Mask]:
        return self.stays(sizes)

    def shrunk(
        self, taken: list[Mask], wanted: list[Mask], inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        by_type = ("blueprint", "slots")
        weights = [
            array[taken[0]] if variable.name in by_type else array
            for variable in self.layer.weights
            for array in [self._array(variable)]
        ]
        return self._changed(), weights

    def read(self) -> list[Slice]:
        types = np.arange(self.layer.blueprint.shape[0])
        return [Slice(self.layer.slots, 0, types)]

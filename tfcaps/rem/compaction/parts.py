"""Rules of parts and of the classes that are made of them."""

from typing import Any

import numpy as np

from tfcaps.rem.compaction.units import (
    Convolution,
    Ids,
    Mask,
    Rule,
    Slice,
    Values,
    any_along,
)


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

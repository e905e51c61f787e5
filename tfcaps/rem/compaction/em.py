"""The units of layers with EM routing, whose capsules have activations.

A child of activation 0 moves no parent. A parent whose `beta_a` is that of an
absent one is never active, and takes no share of a child.
"""

from typing import Any

import numpy as np

from tfcaps.rem.compaction.routed import (
    ClassChildren,
    CompactChildren,
    Routed,
    WindowChildren,
)
from tfcaps.rem.compaction.units import Ids, Mask, Slice, Values, any_along


class _EM(Routed):
    """What both kinds of layers share; they take and give activations."""

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        return [None, np.where(self._silent(), 0.0, np.nan)]

    def ties(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        return [(inputs[0], inputs[1])]

    def _silent(self) -> Mask:
        beta_a, absent = self._array(self.layer.beta_a), self._absent
        return np.asarray(np.abs(beta_a - absent) < 0.5 * abs(absent))

    @property
    def _absent(self) -> float:
        return float(self.layer.routing.absent)


class EMWindows(_EM, WindowChildren):
    """ConvCaps."""

    def stays(self, sizes: list[int]) -> list[Mask]:
        if len(sizes) != 2:  # there are couplings with each parent
            return [np.ones(size, bool) for size in sizes]
        return [~self._silent()] * 2

    def fixed(self, sizes: list[int]) -> list[Mask]:
        return [np.full(size, len(sizes) != 2) for size in sizes]

    def follows(self, taken: list[Mask], wanted: list[Mask]) -> list[Mask]:
        if len(wanted) != 2:
            return wanted
        return [wanted[0] | wanted[1]] * 2

    def ties(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        tied = super().ties(inputs, outputs)
        if len(outputs) == 2:
            tied.append((outputs[0], outputs[1]))
        return tied

    def made(self) -> list[Slice]:
        layer = self.layer
        parents = np.arange(layer.num_types)
        axis = len(layer.transformation.shape) - 3
        return [
            Slice(layer.transformation, axis, parents),
            Slice(layer.beta_u, 0, parents),
            Slice(layer.beta_a, 0, parents, self._absent),
        ]

    def _votes(self, inputs: list[Values]) -> Mask:
        return (inputs[1] != 0)[None]

    def _settings(self, wanted: Mask, places: int = 1) -> dict[str, Any]:
        config: dict[str, Any] = self.layer.get_config()
        return {**config, "num_types": int(wanted.sum())}


class EMChildren(_EM, ClassChildren):
    """ClassCaps, of which whole types of children can be inactive.

    These must vote zero too, so that all have the same couplings.
    """

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        return []

    def stays(self, sizes: list[int]) -> list[Mask]:
        return [np.ones(size, bool) for size in sizes]

    def fixed(self, sizes: list[int]) -> list[Mask]:
        return self.stays(sizes)

    def made(self) -> list[Slice]:
        return []

    def own(self) -> list[Slice]:
        return []

    def _votes(self, inputs: list[Values]) -> Mask:
        poses, activations = inputs
        if self.layer.share == "all":
            votes = poses != 0
        else:
            weight = self._array(self.layer.transformation)
            votes = any_along(weight, 1, 2, 3)
        return votes.reshape(-1, len(poses)) | (activations != 0)


class EMCompactChildren(EMChildren, CompactChildren):
    """CompactCaps, which reads some types of its input."""

    def _voting(self, inputs: list[Values]) -> Mask:
        poses, activations = inputs
        if self.layer.share == "all":
            votes = poses[self.units] != 0
        else:
            weight = self._array(self.layer.transformation)
            votes = any_along(weight, 1, 2, 3)
        return np.asarray(votes | (activations[self.units] != 0))

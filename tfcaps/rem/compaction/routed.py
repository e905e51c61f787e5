"""The units of routed layers: children that vote, parents that compete.

A child that votes zero for every parent moves none where the routing ignores
silent children. A parent for which every child votes zero keeps its share of
them: a layer without it counts it among the routing's `silent_parents`.

With EM routing capsules have activations: a child of activation 0 that votes
zero moves no parent, and a parent whose `beta_a` is that of an absent one is
never active, and takes no share of a child.
"""

import math
from typing import Any

import numpy as np

from tfcaps.layers import CompactCaps
from tfcaps.rem.compaction.units import (
    Ids,
    Mask,
    Rule,
    Shape,
    Slice,
    Values,
    any_at,
)
from tfcaps.routing import EMRouting


class RoutedLayerRule(Rule):
    """A layer of children and parents."""

    competes = True
    # At how many places a type is a parent for the same children.
    places = 1

    def __init__(self, layer: Any):
        super().__init__(layer)
        self.is_em = isinstance(layer.routing, EMRouting)
        self.loses_parents = hasattr(layer.routing, "silent_parents")

    def stays(self, outputs: int) -> bool:
        # Couplings, the output after these, have a place for each parent.
        return not self.loses_parents or outputs != 1 + self.is_em

    def constants(self, inputs: list[Values]) -> list[Values]:
        if not self.loses_parents:
            return []
        silent = np.where(self.silent(), 0.0, np.nan)
        return (
            [np.full_like(silent, np.nan), silent] if self.is_em else [silent]
        )

    def used(self, wanted: Mask, inputs: list[Values]) -> Mask:
        used = super().used(wanted, inputs)
        return used | (inputs[1] != 0) if self.is_em else used

    def tied_units(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        tied = [(inputs[0], ids) for ids in inputs[1:]]
        if not self.stays(len(outputs)):
            tied += [(outputs[0], ids) for ids in outputs[1:]]
        return tied

    def producer_slices(self) -> list[Slice]:
        weight = self.layer.transformation
        parents = np.arange(weight.shape[-3])
        slices = [Slice(weight, len(weight.shape) - 3, parents)]
        for name, mark in self._routing_weights().items():
            if -2 in mark.shape:
                variable = getattr(self.layer, name)
                axis = mark.shape.index(-2)
                fill = self.layer.routing.absent if name == "beta_a" else 0.0
                slices.append(
                    Slice(variable, axis, parents, fill, not mark.per_child)
                )
        return slices

    def _routing_weights(self) -> dict[str, Any]:
        """Returns the routing's weights, -2 for their axis of parents."""
        marks = self.layer.routing.weights(-1, -2, -3)
        return {name: marks[name] for name in self.layer._routing_weights}

    def _of_children(self, units: Ids, axis: int = 0) -> list[Slice]:
        """Returns the weights of children, each of one of the units.

        `axis` is that of children in the transformation.
        """
        weight = self.layer.transformation
        slices = [Slice(weight, axis, units[: weight.shape[axis]])]
        for name, mark in self._routing_weights().items():
            if mark.per_child:
                variable = getattr(self.layer, name)
                slices.append(Slice(variable, 0, units, counts=False))
        return slices

    def _settings(self, wanted: Mask) -> dict[str, Any]:
        if wanted.all():
            return {}
        settings = super()._settings(wanted)
        if not self.is_em:
            routing = self.layer.get_config()["routing"]
            config = dict(routing["config"])
            config["silent_parents"] += self.places * int((~wanted).sum())
            settings["routing"] = {**routing, "config": config}
        return settings


class ClassChildren(RoutedLayerRule):
    """ClassCaps, of which single children can be left out."""

    num_units = "num_capsules"

    def __init__(self, layer: Any, shape: Shape):
        super().__init__(layer)
        self.grid = layer.children_shape(shape)

    def rebuild(
        self, taken: Mask, wanted: Mask, inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        votes = self._votes(inputs)
        if votes.all() and taken.all():
            return super().rebuild(taken, wanted, inputs)
        if not votes.any():
            votes[0, np.argmax(taken)] = True
        config = {
            **self.layer.get_config(),
            **self._settings(wanted),
            "grid": self.grid,
            "sources": np.flatnonzero(votes[:, taken]).tolist(),
            "origins": np.flatnonzero(votes).tolist(),
        }
        children = np.arange(math.prod(self.grid))
        slices = self._of_children(children)
        if self.layer.share == "all":
            slices = slices[1:]  # the matrix is everybody's
        weights = self._left(
            (self.producer_slices(), wanted),
            (slices, np.resize(votes, len(children))),
        )
        return CompactCaps.from_config(config), weights

    def consumer_slices(self) -> list[Slice]:
        if self.layer.share == "all":
            return []
        types = self.grid[-1]
        return self._of_children(np.arange(math.prod(self.grid)) % types)

    def _votes(self, inputs: list[Values]) -> Mask:
        """Returns which children vote, `[positions, children]`."""
        poses = inputs[0]
        votes = np.ones(len(poses), bool)
        if self.layer.share != "all":
            votes = any_at(self._array(self.layer.transformation) != 0, 0)
        votes = votes.reshape(-1, len(poses)) & (poses != 0)
        return votes | (inputs[1] != 0) if self.is_em else votes


class WindowChildren(RoutedLayerRule):
    """ConvCaps, of which all windows have the same types."""

    num_units = "num_types"

    def __init__(self, layer: Any):
        super().__init__(layer)
        self.loses_parents |= self.is_em

    def consumer_slices(self) -> list[Slice]:
        if self.layer.share_types:
            return []
        types = np.arange(self.layer.transformation.shape[2])
        positions = math.prod(self.layer.kernel_size)
        return self._of_children(np.tile(types, positions), axis=2)


class WholeMaps(RoutedLayerRule):
    """ConvCaps3D, whose parents at all positions compete.

    All types of children share the kernel: one that votes zero is a map of
    zeros.
    """

    num_units = "num_types"

    def __init__(self, layer: Any, shape: Shape):
        super().__init__(layer)
        _, rows, columns, *_ = layer.compute_output_shape(shape)
        self.places = rows * columns

    def producer_slices(self) -> list[Slice]:
        layer = self.layer
        channels = np.arange(layer.conv.kernel.shape[3])
        slices = [Slice(layer.conv.kernel, 3, channels // layer.dim)]
        if layer.bias is not None:
            slices.append(Slice(layer.bias, 0, np.arange(layer.num_types)))
        return slices

"""The units of routed layers: children that vote, parents that compete.

A child that votes zero for every parent moves none where the routing ignores
silent children. A parent for which every child votes zero keeps its share of
them: a layer without it counts it among the routing's `silent_parents`.

With EM routing capsules have activations: a child of activation 0 moves no
parent, and a parent whose `beta_a` is that of an absent one is never active,
and takes no share of a child.
"""

import abc
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfcaps.layers import CompactCaps
from tfcaps.rem.compaction.units import (
    Ids,
    Mask,
    Rule,
    Shape,
    Slice,
    Values,
    any_along,
)


class Routed(Rule):
    """A layer of children and parents, with what its two kinds share."""

    # Name of the setting that counts the parents.
    num_parents = ""

    def __init__(self, layer: Any):
        super().__init__(layer)
        self.silent_parents = hasattr(layer.routing, "silent_parents")

    @abc.abstractmethod
    def _votes(self, inputs: list[Values]) -> Mask:
        """Returns a mask of the children that vote, `[positions, children]`.

        Children are counted as the layer's matrices are.
        """

    def needs(self, wanted: list[Mask], inputs: list[Values]) -> list[Mask]:
        needed = any_along(self._votes(inputs), 0)
        return [needed[: len(values)] for values in inputs]

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        if not self.silent_parents:
            return []
        return [np.where(self._silent(), 0.0, np.nan)]

    def stays(self, sizes: list[int]) -> list[Mask]:
        every = [np.ones(size, bool) for size in sizes]
        if not self.silent_parents or len(sizes) > 1:
            return every  # couplings have a place for each parent
        silent = self._silent()
        return [~silent] if sizes == [len(silent)] else every

    def fixed(self, sizes: list[int]) -> list[Mask]:
        stays = not self.silent_parents or len(sizes) > 1
        return [np.full(size, stays) for size in sizes]

    def made(self) -> list[Slice]:
        if not self.silent_parents:
            return []
        weight = self.layer.transformation
        parents = np.arange(weight.shape[-3])
        slices = [Slice(weight, len(weight.shape) - 3, parents)]
        for name, (axis, _) in self._parts().items():
            if axis is not None:
                slices.append(Slice(getattr(self.layer, name), axis, parents))
        return slices

    def _silent(self) -> Mask:
        """Returns the parents for which nobody votes, and without a bias."""
        weight = self._array(self.layer.transformation)
        votes = any_along(
            np.moveaxis(weight, -3, 0).reshape(weight.shape[-3], -1), 1
        )
        for name, (axis, per_child) in self._parts().items():
            if axis is not None and not per_child:
                array = self._array(getattr(self.layer, name))
                votes |= array.reshape(len(array), -1).any(axis=1)
        return ~votes

    def _parts(self) -> dict[str, tuple[int | None, bool]]:
        """Returns the routing's weights: the axis of parents, and children."""
        layer = self.layer
        marks = layer.routing.weights(-1, -2, -3)
        parts: dict[str, tuple[int | None, bool]] = {}
        for name in layer._routing_weights:
            shape = marks[name].shape
            axis = shape.index(-2) if -2 in shape else None
            parts[name] = axis, marks[name].per_child
        return parts

    def _weights(
        self,
        kept: Mask,
        wanted: Mask,
        transformation: NDArray[Any],
        positions: int,
    ) -> list[Any]:
        """Returns all weights, for the children and parents that are left."""
        weights = [transformation[..., wanted, :, :]]
        for name, (axis, per_child) in self._parts().items():
            array = self._array(getattr(self.layer, name))
            if axis is not None:
                array = np.compress(wanted, array, axis=axis)
            if per_child:
                rest = array.shape[1:]
                array = array.reshape(positions, -1, *rest)[:, kept]
                array = array.reshape(-1, *rest)
            weights.append(array)
        return weights

    def _settings(self, wanted: Mask, places: int = 1) -> dict[str, Any]:
        """Returns the config with the parents that are left."""
        config = self.layer.get_config()
        if wanted.all():
            return config
        routing = config["routing"]
        settings = routing["config"]
        silent = settings["silent_parents"] + places * int((~wanted).sum())
        settings = {**settings, "silent_parents": silent}
        return {
            **config,
            self.num_parents: int(wanted.sum()),
            "routing": {**routing, "config": settings},
        }


class ClassChildren(Routed):
    """ClassCaps."""

    num_parents = "num_capsules"

    def __init__(self, layer: Any, shape: Shape):
        super().__init__(layer)
        self.grid = layer.children_shape(shape)

    def _votes(self, inputs: list[Values]) -> Mask:
        [poses] = inputs
        weight = self._array(self.layer.transformation)
        if self.layer.share == "all":
            votes = np.ones(len(poses), bool)  # unless their poses are zero
        else:
            votes = any_along(weight, 1, 2, 3)
        return votes.reshape(-1, len(poses)) & (poses != 0)

    def shrunk(
        self, taken: list[Mask], wanted: list[Mask], inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        layer, parents = self.layer, wanted[0]
        votes = self._votes(inputs)
        settings = self._settings(parents)
        if votes.all() and taken[0].all():
            kept = np.ones(votes.size, bool)
            layer_left = type(layer).from_config(settings)
            array = self._array(layer.transformation)
            return layer_left, self._weights(kept, parents, array, 1)
        if not votes.any():
            votes[0, np.argmax(taken[0])] = True
        kept = votes.ravel()
        config = {
            **settings,
            "grid": self.grid,
            "sources": np.flatnonzero(votes[:, taken[0]]).tolist(),
            "origins": np.flatnonzero(kept).tolist(),
        }
        transformation = self._array(layer.transformation)
        if layer.share != "all":
            transformation = transformation[kept]
        positions = math.prod(self.grid) // len(kept)
        weights = self._weights(kept, parents, transformation, positions)
        return CompactCaps.from_config(config), weights

    def read(self) -> list[Slice]:
        if self.layer.share == "all":
            return []
        types = self.grid[-1]
        return self._of_children(np.arange(math.prod(self.grid)) % types)

    def own(self) -> list[Slice]:
        if self.layer.share is not None:
            return []
        return self._of_children(np.arange(math.prod(self.grid)))

    def children(self, units: Ids) -> Ids:
        return np.tile(units, math.prod(self.grid) // len(units))

    def _of_children(self, units: Ids) -> list[Slice]:
        """Returns the weights of children, of which each is of a unit."""
        layer = self.layer
        matrices = units[: layer.transformation.shape[0]]
        slices = [Slice(layer.transformation, 0, matrices)]
        for name, (_, per_child) in self._parts().items():
            if per_child:
                slices.append(Slice(getattr(layer, name), 0, units))
        return slices


class CompactChildren(ClassChildren):
    """CompactCaps, which reads some of its input's children."""

    def __init__(self, layer: Any, shape: Shape):
        super().__init__(layer, shape)
        self.positions, _ = layer._counted(shape)
        num_units = shape[3] if len(shape) == 5 else shape[1]
        self.sources = np.array(layer.sources)
        # The unit of the input in which each source is.
        self.units = self.sources % num_units

    def needs(self, wanted: list[Mask], inputs: list[Values]) -> list[Mask]:
        needed = np.zeros(len(inputs[0]), bool)
        needed[self.units[self._voting(inputs)]] = True
        return [needed] * len(inputs)

    def shrunk(
        self, taken: list[Mask], wanted: list[Mask], inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        layer = self.layer
        kept = self._voting(inputs) & taken[0][self.units]
        if not kept.any():
            kept[np.argmax(taken[0][self.units])] = True
        # Children are counted anew without those that the input lost.
        copies = (self.sources.max() + len(taken[0])) // len(taken[0])
        places = np.cumsum(np.tile(taken[0], copies)) - 1
        config = {
            **self._settings(wanted[0]),
            "sources": places[self.sources[kept]].tolist(),
            "origins": np.array(layer.origins)[kept].tolist(),
        }
        transformation = self._array(layer.transformation)
        if layer.share != "all":
            transformation = transformation[kept]
        weights = self._weights(kept, wanted[0], transformation, self.positions)
        return CompactCaps.from_config(config), weights

    def read(self) -> list[Slice]:
        if self.layer.share == "all":
            return []
        return self._of_children(np.tile(self.units, self.positions))

    def own(self) -> list[Slice]:
        if self.layer.share is not None:
            return []
        return self._of_children(np.arange(len(self.sources)))

    def children(self, units: Ids) -> Ids:
        return units[self.units]

    def _voting(self, inputs: list[Values]) -> Mask:
        """Returns a mask of the sources that vote."""
        [poses] = inputs
        votes = np.ones(len(self.sources), bool)
        if self.layer.share != "all":
            votes = any_along(self._array(self.layer.transformation), 1, 2, 3)
        return votes & (poses[self.units] != 0)


class WindowChildren(Routed):
    """ConvCaps, of which all windows have the same types."""

    num_parents = "num_types"

    def __init__(self, layer: Any, shape: Shape):
        super().__init__(layer)
        self.shape = shape

    def _votes(self, inputs: list[Values]) -> Mask:
        [poses] = inputs
        weight = self._array(self.layer.transformation)
        if self.layer.share_types:
            votes = np.ones(len(poses), bool)  # unless their poses are zero
        else:
            votes = any_along(weight, 0, 1, 3, 4, 5)
        return votes[None] & (poses != 0)

    def shrunk(
        self, taken: list[Mask], wanted: list[Mask], inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        transformation = self._array(self.layer.transformation)
        if not self.layer.share_types:
            transformation = transformation[:, :, taken[0]]
        positions = math.prod(self.layer.kernel_size)
        weights = self._weights(taken[0], wanted[0], transformation, positions)
        config = self._settings(wanted[0])
        return type(self.layer).from_config(config), weights

    def read(self) -> list[Slice]:
        layer = self.layer
        if layer.share_types:
            return []
        weight = layer.transformation
        types = np.arange(weight.shape[2])
        slices = [Slice(weight, 2, types)]
        for name, (_, per_child) in self._parts().items():
            if per_child:
                units = np.tile(types, math.prod(layer.kernel_size))
                slices.append(Slice(getattr(layer, name), 0, units))
        return slices


class _EM(Routed):
    """The part that both kinds of layers share: activations in and out."""

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

"""The units of a layer: which make which, and which weights are theirs.

Units are the channels of a feature map `[b, h, w, c]`, the types of a capsule
map `[b, h, w, t, k]` and the capsules `[b, i, k]`; other tensors have none.
`tfcaps.rem.compact` removes units that have no effect;
`tfcaps.rem.prune_structured` takes the effect of units away.
"""

from typing import Any, NamedTuple

import numpy as np
from keras import ops
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
# Of units; NaN where the value is not the same everywhere in every image.
Values = NDArray[np.floating]
Constants = list[Values]  # of each input or output
# Numbers of units, and pairs of those that only leave together.
Ids = NDArray[np.integer]
Ties = list[tuple[Ids, Ids]]
Rebuilt = tuple[Any, list[Any]]  # a layer and its weights
# Of a layer's input.
Shape = tuple[int | None, ...]

# By the number of axes of a tensor, which is that of its units.
AXIS = {3: 1, 4: 3, 5: 3}


class Slice(NamedTuple):
    """The entries of a weight that belong to units."""

    variable: Any
    axis: int
    units: Ids  # number of the unit of each entry along the axis
    fill: float = 0.0  # where a unit was left out
    counts: bool = True  # whether a unit has an effect if others are here


class Rule:
    """How units of a layer's outputs depend on units of its inputs.

    Values and numbers of units come as lists, one for each input or output of
    the layer's only call, masks as those of the first. Most of it follows from
    the weights of each unit.
    """

    # Name of the setting that counts the units of an output.
    num_units = ""
    # Whether output units that are not silent stay, also if nothing reads them.
    competes = False

    def __init__(self, layer: Any):
        self.layer = layer

    def producer_slices(self) -> list[Slice]:
        """Returns the weights that make each unit of the first output."""
        return []

    def consumer_slices(self) -> list[Slice]:
        """Returns the weights that read each unit of the first input."""
        return []

    def tied_units(self, inputs: list[Ids], outputs: list[Ids]) -> Ties:
        """Returns pairs of units that only leave together."""
        return []

    def stays(self, outputs: int) -> bool:
        """Tells whether no unit of so many outputs can be left out."""
        return False

    def constants(self, inputs: Constants) -> Constants:
        """Returns the values of constant output units, NaN for the others.

        The list is shorter, or empty, where none is known to be constant.
        """
        return []

    def used(self, wanted: Mask, inputs: Constants) -> Mask:
        """Returns the input units that the `wanted` output units depend on."""
        slices = [s for s in self.consumer_slices() if s.counts]
        used = np.full(len(inputs[0]), not slices)
        for s in slices:
            array = self._array(s.variable) != 0
            for made in self.producer_slices():
                if made.variable is s.variable:
                    kept = wanted[made.units]
                    array = np.compress(kept, array, axis=made.axis)
            np.logical_or.at(used, s.units, any_at(array, s.axis))
        return used & (inputs[0] != 0)

    def rebuild(self, taken: Mask, wanted: Mask, inputs: Constants) -> Rebuilt:
        """Returns a layer for the units that are left, and its weights."""
        return self._changed(**self._settings(wanted)), self._left(
            (self.producer_slices(), wanted),
            (self.consumer_slices(), taken),
        )

    def _settings(self, wanted: Mask) -> dict[str, Any]:
        """Returns the settings of a layer of the wanted units."""
        return {self.num_units: int(wanted.sum())} if self.num_units else {}

    def _changed(self, **changes: Any) -> Any:
        """Returns a layer with this one's config, but for the changes."""
        config = {**self.layer.get_config(), **changes}
        return type(self.layer).from_config(config)

    def _left(self, *kept: tuple[list[Slice], Mask]) -> list[Any]:
        """Returns all weights with what is kept of the units of slices."""
        arrays = {id(v): self._array(v) for v in self.layer.weights}
        for slices, mask in kept:
            for s in slices:
                array = arrays[id(s.variable)]
                array = np.compress(mask[s.units], array, axis=s.axis)
                arrays[id(s.variable)] = array
        return list(arrays.values())

    def silent(self) -> Mask:
        """Returns the units of which every weight is as if they had left."""
        slices = [s for s in self.producer_slices() if s.counts]
        silent = np.ones(max(s.units.max() for s in slices) + 1, bool)
        for s in slices:
            array = self._array(s.variable)
            used = any_at(array != np.asarray(s.fill, array.dtype), s.axis)
            np.logical_and.at(silent, s.units, ~used)
        return silent

    def _array(self, variable: Any) -> NDArray[Any]:
        return np.asarray(ops.convert_to_numpy(variable))


def any_at(used: Mask, axis: int) -> Mask:
    """Returns a mask of where along an axis something is true."""
    others = tuple(k for k in range(used.ndim) if k != axis)
    return np.asarray(used.any(axis=others))

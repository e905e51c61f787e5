"""Components of poses as units: one leaves all capsules of a layer at once.

A component that is zero in every capsule adds nothing to a length, a squash or
a vote. The rules are those of layers in which it can be left out; units are
counted along the last axis of capsules.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tfcaps.layers import (
    CapsuleConv2D,
    ClassCaps,
    CompactCaps,
    ConvCaps,
    Length,
    PrimaryCaps,
    Squash,
)
from tfcaps.rem.compaction.units import (
    Ids,
    Mask,
    Rule,
    Shape,
    Slice,
    Tied,
    Values,
    any_along,
)
from tfcaps.routing import DynamicRouting, ScaledDistanceRouting, UniformRouting

# Those that see the components of a vote only in sums over all of them.
# (Self-attention also divides by the root of their number.)
_SUMMING = (DynamicRouting, ScaledDistanceRouting, UniformRouting)


def num_components(tensor: Any) -> int:
    """Returns the number of components of a tensor's capsules."""
    is_capsules = len(tensor.shape) in (3, 5)
    return int(tensor.shape[-1] or 0) if is_capsules else 0


def component_rule_for(
    layer: Any, inputs: list[Shape], outputs: list[Shape]
) -> Rule | None:
    """Returns the rule of a layer, or `None` if it may need everything.

    Args:
        layer: A layer, or an operation.
        inputs: Shapes of the tensors that it takes.
        outputs: Shapes of those that it gives.
    """
    make = _RULES.get(type(layer))
    if make is None or (len(inputs) > 1 and type(layer) not in _JOINING):
        return None
    return make(layer, inputs)


class _Making(Rule):
    """A layer that makes components of its own."""

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        return [np.where(self._silent(), 0.0, np.nan)]

    def needs(self, wanted: list[Mask], inputs: list[Values]) -> list[Mask]:
        return [values != 0 for values in inputs]

    def stays(self, sizes: list[int]) -> list[Mask]:
        silent = self._silent()
        more = [np.ones(size, bool) for size in sizes[1:]]
        return [~silent, *more]

    def fixed(self, sizes: list[int]) -> list[Mask]:
        more = [np.ones(size, bool) for size in sizes[1:]]
        return [np.zeros(sizes[0], bool), *more]

    def shrunk(
        self, taken: list[Mask], wanted: list[Mask], inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        layer = self.layer
        arrays = {id(v): self._array(v) for v in layer.weights}
        for masks, slices in ((wanted, self.made()), (taken, self.read())):
            for s in slices:
                array = arrays[id(s.variable)]
                kept = masks[0][s.units]
                arrays[id(s.variable)] = np.compress(kept, array, axis=s.axis)
        weights = [arrays[id(variable)] for variable in layer.weights]
        return self._changed(dim=int(wanted[0].sum())), weights

    def _silent(self) -> Mask:
        """Returns the components that are zero in every capsule."""
        silent = np.ones(self.layer.dim, bool)
        for s in self.made():
            array = np.moveaxis(self._array(s.variable), s.axis, 0)
            used = any_along(array.reshape(len(array), -1), 1)
            np.logical_and.at(silent, s.units, ~used)
        return silent


class _OfConvolution(_Making):
    """PrimaryCaps and CapsuleConv2D."""

    def __init__(self, layer: Any, of: int):
        """`of` is the number of components of an input capsule, 0 for none."""
        super().__init__(layer)
        self.of = of

    def made(self) -> list[Slice]:
        conv = self.layer.conv
        units = np.arange(conv.kernel.shape[3]) % self.layer.dim
        slices = [Slice(conv.kernel, 3, units)]
        return slices + [Slice(conv.bias, 0, units)] * conv.use_bias

    def read(self) -> list[Slice]:
        if not self.of:
            return []
        kernel = self.layer.conv.kernel
        return [Slice(kernel, 2, np.arange(kernel.shape[2]) % self.of)]


class _OfParents(_Making):
    """Routed layers of vector capsules."""

    def made(self) -> list[Slice]:
        layer = self.layer
        units = np.arange(layer.dim)
        axis = len(layer.transformation.shape) - 1
        slices = [Slice(layer.transformation, axis, units)]
        if layer.bias is not None:
            slices.append(Slice(layer.bias, 1, units))
        return slices

    def read(self) -> list[Slice]:
        weight = self.layer.transformation
        axis = len(weight.shape) - 2
        return [Slice(weight, axis, np.arange(weight.shape[axis]))]


class _Same(Tied):
    """A layer that leaves components of zero at zero, and others alone."""

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        zero = np.logical_and.reduce([values == 0 for values in inputs])
        return [np.where(zero, 0.0, np.nan)]

    def ties(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        return [(ids, outputs[0]) for ids in inputs]


class _Flattened(_Same):
    """Reshape of a map of capsules to a list of them."""

    def shrunk(
        self, taken: list[Mask], wanted: list[Mask], inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        shape = (-1, int(wanted[0].sum()))
        return self._changed(target_shape=shape), []


class _Lengths(Rule):
    """Length, to which components of zero add nothing."""

    def needs(self, wanted: list[Mask], inputs: list[Values]) -> list[Mask]:
        return [values != 0 for values in inputs]

    def shrunk(
        self, taken: list[Mask], wanted: list[Mask], inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        return self._changed(), []


def _primary(layer: Any, inputs: list[Shape]) -> Rule | None:
    if layer.depthwise:
        return None
    return _OfConvolution(layer, int(inputs[0][4] or 0) if inputs[0][4:] else 0)


def _routed(layer: Any, inputs: list[Shape]) -> Rule | None:
    known = type(layer.routing) in _SUMMING and not layer.matrix
    return _OfParents(layer) if known else None


def _add(layer: Any, inputs: list[Shape]) -> Rule | None:
    return _Same(layer) if len(set(inputs)) == 1 else None


def _concatenate(layer: Any, inputs: list[Shape]) -> Rule | None:
    axes = len(inputs[0])
    return _Same(layer) if layer.axis % axes != axes - 1 else None


def _reshape(layer: Any, inputs: list[Shape]) -> Rule | None:
    [shape] = inputs
    target = layer.target_shape
    known = len(shape) == 5 and len(target) == 2 and target[-1] == shape[-1]
    return _Flattened(layer) if known else None


def _capsules(layer: Any, inputs: list[Shape]) -> Rule | None:
    return _Same(layer) if len(inputs[0]) in (3, 5) else None


# By exact type, as in `rules.py`.
_RULES: dict[type, Callable[[Any, list[Shape]], Rule | None]] = {
    CapsuleConv2D: _primary,
    ClassCaps: _routed,
    CompactCaps: _routed,
    ConvCaps: _routed,
    Length: lambda layer, inputs: _Lengths(layer),
    PrimaryCaps: _primary,
    Squash: _capsules,
    keras.layers.Add: _add,
    keras.layers.Concatenate: _concatenate,
    keras.layers.Identity: _capsules,
    keras.layers.Reshape: _reshape,
}
_JOINING = (keras.layers.Add, keras.layers.Concatenate)

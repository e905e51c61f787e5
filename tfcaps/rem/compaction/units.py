"""The units of a layer: which make which, and which weights are theirs.

Units are the channels of a feature map `[b, h, w, c]`, the types of a capsule
map `[b, h, w, t, k]` and the capsules `[b, i, k]`; other tensors have none.
`tfcaps.rem.compact` removes units that have no effect;
`tfcaps.rem.prune_structured` takes the effect of units away.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
# Of units; NaN where the value is not the same everywhere in every image.
Values = NDArray[np.floating]
# Numbers of units.
Ids = NDArray[np.integer]
# Of a layer's input.
Shape = tuple[int | None, ...]


class Slice(NamedTuple):
    """The entries of a weight that belong to units.

    Attributes:
        variable: The weight.
        axis: An axis of it, counted from the first.
        units: Number of the unit of each entry along the axis.
        fill: What the weight is where a unit was left out.
    """

    variable: Any
    axis: int
    units: Ids
    fill: float = 0.0


class Rule(abc.ABC):
    """The way in which units of a layer's outputs depend on its inputs.

    Masks, values and numbers of units come as lists, one for each input or
    output of the layer's only call.
    """

    def __init__(self, layer: Any):
        self.layer = layer

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        """Returns the values of constant output units, NaN for the others.

        `None`, or a shorter list, where none is known to be constant.
        """
        del inputs
        return []

    @abc.abstractmethod
    def needs(self, wanted: list[Mask], inputs: list[Values]) -> list[Mask]:
        """Returns the input units that `wanted` output units depend on."""

    def follows(self, taken: list[Mask], wanted: list[Mask]) -> list[Mask]:
        """Returns the output units that come with `taken` input units."""
        del taken
        return wanted

    def stays(self, sizes: list[int]) -> list[Mask]:
        """Returns a mask of the output units that cannot be left out.

        Args:
            sizes: How many units each output has.
        """
        return [np.zeros(size, bool) for size in sizes]

    @abc.abstractmethod
    def shrunk(
        self, taken: list[Mask], wanted: list[Mask], inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        """Returns a layer for the units that are left, and its weights."""

    def fixed(self, sizes: list[int]) -> list[Mask]:
        """Returns a mask of the output units that pruning cannot take away."""
        return [np.zeros(size, bool) for size in sizes]

    def ties(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        """Returns pairs of units that only leave together."""
        del inputs, outputs
        return []

    def made(self) -> list[Slice]:
        """Returns the weights that make each unit of the first output."""
        return []

    def read(self) -> list[Slice]:
        """Returns the weights that read each unit of the first input."""
        return []

    def own(self) -> list[Slice]:
        """Returns the weights of units that concern this layer alone."""
        return []

    def children(self, units: Ids) -> Ids:
        """Returns the unit of each child, which may be one of `own` too.

        Args:
            units: Numbers of the first input's units.
        """
        return units

    def _changed(self, **changes: Any) -> Any:
        """Returns a layer with this one's config, but for the changes."""
        config = {**self.layer.get_config(), **changes}
        return type(self.layer).from_config(config)

    def _array(self, variable: Any) -> NDArray[Any]:
        return np.asarray(ops.convert_to_numpy(variable))


class Convolution(Rule):
    """Conv2D, and capsule layers that are one or two of them inside."""

    def __init__(
        self, layer: Any, convs: list[Any], num_units: str, unit: int, of: int
    ):
        """`unit` and `of` are the channels of an output and an input unit."""
        super().__init__(layer)
        self.convs = convs
        self.num_units = num_units
        self.unit = unit
        self.of = of

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        [conv] = self.convs
        units = np.repeat(inputs[0], self.of)
        kernel = self._array(conv.kernel)
        reached = any_along(kernel, 0, 1)
        not_known = np.isnan(units)
        if conv.padding != "valid":
            not_known |= units != 0  # zeros surround the map
        varies = reached[not_known].any(axis=0)
        sums = self._bias(conv) + np.nan_to_num(units) @ kernel.sum(axis=(0, 1))
        if self.unit == 1:
            return [np.where(varies, np.nan, apply(conv.activation, sums))]
        silent = ~varies & (sums == 0)
        whole = silent.reshape(-1, self.unit).all(axis=1)
        return [np.where(whole, 0.0, np.nan)]

    def needs(self, wanted: list[Mask], inputs: list[Values]) -> list[Mask]:
        values = inputs[0]
        needed = np.zeros(len(values) * self.of, bool)
        for conv, channels in self._channels(wanted[0]):
            reached = any_along(self._array(conv.kernel), 0, 1)
            needed |= reached[:, channels].any(axis=1)
        folded = values == 0
        if self.convs[0].padding == "valid" and self._is_float32:
            folded = ~np.isnan(values)
        return [needed.reshape(-1, self.of).any(axis=1) & ~folded]

    def shrunk(
        self, taken: list[Mask], wanted: list[Mask], inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        rows = np.repeat(taken[0], self.of)
        left_out = np.where(taken[0], 0.0, np.nan_to_num(inputs[0]))
        left_out = np.repeat(left_out, self.of)
        weights = []
        for conv, channels in self._channels(wanted[0]):
            kernel = self._array(conv.kernel)
            bias = self._bias(conv) + left_out @ kernel.sum(axis=(0, 1))
            weights.append(kernel[:, :, rows][..., channels])
            if conv.use_bias or bias[channels].any():
                weights.append(bias[channels].astype(kernel.dtype))
        changes: dict[str, Any] = {self.num_units: int(wanted[0].sum())}
        if len(self.convs) == 1:
            changes["use_bias"] = len(weights) == 2
        return self._changed(**changes), weights

    def made(self) -> list[Slice]:
        slices = []
        for conv in self.convs:
            channels = int(conv.kernel.shape[-1])
            units = np.arange(channels) // self._unit(conv)
            slices.append(Slice(conv.kernel, 3, units))
            if conv.use_bias:
                slices.append(Slice(conv.bias, 0, units, self._fill(conv)))
        return slices

    def read(self) -> list[Slice]:
        kernels = [conv.kernel for conv in self.convs]
        return [
            Slice(kernel, 2, np.arange(kernel.shape[2]) // self.of)
            for kernel in kernels
        ]

    def _unit(self, conv: Any) -> int:
        """Returns the number of a convolution's channels that make a unit."""
        del conv
        return self.unit

    def _fill(self, conv: Any) -> float:
        """Returns the bias of a unit that was left out."""
        del conv
        return 0.0

    def _channels(self, wanted: Mask) -> list[tuple[Any, Mask]]:
        """Returns each convolution and its channels in the wanted units."""
        return [(c, np.repeat(wanted, self._unit(c))) for c in self.convs]

    def _bias(self, conv: Any) -> NDArray[Any]:
        if not conv.use_bias:
            return np.zeros(conv.kernel.shape[-1])
        return self._array(conv.bias).astype("float64")

    @property
    def _is_float32(self) -> bool:
        # In half precision the bias would be rounded otherwise than the sum.
        return bool(self.layer.compute_dtype == "float32")


class MatrixConvolution(Convolution):
    """PrimaryMatrixCaps: a type has poses and an activation."""

    # Its sigmoid is 0 even in float64.
    _never = -1e4

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        del inputs
        activation = self.convs[1]
        kernel = self._array(activation.kernel)
        silent = ~any_along(kernel, 0, 1, 2)
        silent &= self._bias(activation) <= self._never
        return [None, np.where(silent, 0.0, np.nan)]

    def follows(self, taken: list[Mask], wanted: list[Mask]) -> list[Mask]:
        either = wanted[0] | wanted[1]
        return [either, either]

    def ties(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        return [(outputs[0], outputs[1])]

    def _unit(self, conv: Any) -> int:
        return self.unit if conv is self.convs[0] else 1

    def _fill(self, conv: Any) -> float:
        return 0.0 if conv is self.convs[0] else self._never


class Tied(Rule):
    """A layer each of whose output units is made of certain input units."""

    def needs(self, wanted: list[Mask], inputs: list[Values]) -> list[Mask]:
        needed = [np.zeros(len(values), bool) for values in inputs]
        for ids, outputs in self._local(needed, wanted):
            joined = np.concatenate(needed)
            np.logical_or.at(joined, ids, wanted[0][outputs])
            needed = np.split(joined, np.cumsum([len(n) for n in needed])[:-1])
        return needed

    def follows(self, taken: list[Mask], wanted: list[Mask]) -> list[Mask]:
        given = wanted[0].copy()
        joined = np.concatenate(taken)
        for ids, outputs in self._local(taken, wanted):
            np.logical_or.at(given, outputs, joined[ids])
        return [given]

    def shrunk(
        self, taken: list[Mask], wanted: list[Mask], inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        return self._changed(), self.layer.get_weights()

    def _local(
        self, inputs: Sequence[Mask], outputs: Sequence[Mask]
    ) -> list[tuple[Ids, Ids]]:
        """Returns the ties as places in all inputs, and in the output."""
        ends = np.cumsum([len(mask) for mask in inputs])
        starts = ends - [len(mask) for mask in inputs]
        ids = [np.arange(a, b) for a, b in zip(starts, ends, strict=True)]
        return self.ties(ids, [np.arange(len(outputs[0]))])


class Depthwise(Tied):
    """Depthwise PrimaryCaps: each channel becomes one component."""

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        conv = self.layer.conv
        kernel = self._array(conv.kernel)
        silent = ~any_along(kernel, 0, 1, 3) | (inputs[0] == 0)
        if conv.use_bias:
            silent &= self._array(conv.bias) == 0
        whole = silent.reshape(-1, self.layer.dim).all(axis=1)
        return [np.where(whole, 0.0, np.nan)]

    def ties(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        return [(inputs[0], np.repeat(outputs[0], self.layer.dim))]

    def shrunk(
        self, taken: list[Mask], wanted: list[Mask], inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        kernel, *bias = self.layer.get_weights()
        weights = [kernel[:, :, taken[0]], *(array[taken[0]] for array in bias)]
        return self._changed(num_types=int(wanted[0].sum())), weights

    def made(self) -> list[Slice]:
        conv = self.layer.conv
        units = np.arange(conv.kernel.shape[2]) // self.layer.dim
        slices = [Slice(conv.kernel, 2, units)]
        return slices + [Slice(conv.bias, 0, units)] * conv.use_bias


class EachUnit(Tied):
    """A layer that treats each unit by itself, with a weight for each or none.

    `changes` are settings that hold for any number of units.
    """

    def __init__(self, layer: Any, shape: Shape, **changes: Any):
        super().__init__(layer)
        self.shape = shape
        self.changes = changes

    def constants(self, inputs: list[Values]) -> list[Values | None]:
        values = inputs[0]
        if len(self.shape) == 4:
            outputs = apply(self._call, values)
            return [np.where(np.isnan(values), np.nan, outputs)]
        zeros = ops.zeros((1,) * max(len(self.shape), 2))
        if np.any(ops.convert_to_numpy(self._call(zeros))):
            return []
        return [np.where(values == 0, 0.0, np.nan)]

    def ties(
        self, inputs: list[Ids], outputs: list[Ids]
    ) -> list[tuple[Ids, Ids]]:
        return [(inputs[0], outputs[0])]

    def shrunk(
        self, taken: list[Mask], wanted: list[Mask], inputs: list[Values]
    ) -> tuple[Any, list[Any]]:
        weights = [array[wanted[0]] for array in self.layer.get_weights()]
        return self._changed(**self.changes), weights

    def made(self) -> list[Slice]:
        return [
            Slice(weight, 0, np.arange(weight.shape[0]))
            for weight in getattr(self.layer, "weights", ())
            if len(weight.shape) == 1
        ]

    def _call(self, inputs: Any) -> Any:
        return self.layer(inputs, training=False)


def any_along(weight: NDArray[Any], *axes: int) -> Mask:
    """Returns a mask of where something along the axes is not zero."""
    return np.asarray(weight.any(axis=axes))


def apply(function: Callable[[Any], Any], units: Values) -> Values:
    """Applies a function of feature maps to constant channels."""
    pixel = ops.convert_to_tensor(np.reshape(units, (1, 1, 1, -1)), "float32")
    result = function(pixel)
    return np.ravel(np.asarray(ops.convert_to_numpy(result))).astype("float64")

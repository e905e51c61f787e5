"""Removes dead channels and capsule types from layers.

Units are the channels of a feature map `[b, h, w, c]` and the types of a
capsule map `[b, h, w, t, k]`; other tensors have none.
"""

import abc
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
# Of units; NaN where the value is not the same everywhere in every image.
Values = NDArray[np.floating]
# Of a layer's input.
Shape = tuple[int | None, ...]


class Rule(abc.ABC):
    """How the units of a layer's output depend on those of its input."""

    # Whether output units can be left out.
    shrinks = True

    def __init__(self, layer: Any):
        self.layer = layer

    def constants(self, inputs: Values) -> Values | None:
        """Returns the values of constant output units, NaN for the others."""
        del inputs
        return None

    @abc.abstractmethod
    def needs(self, wanted: Mask, inputs: Values) -> Mask:
        """Returns the input units that `wanted` output units depend on."""

    def follows(self, taken: Mask, wanted: Mask) -> Mask:
        """Returns the output units that come with `taken` input units."""
        del taken
        return wanted

    @abc.abstractmethod
    def shrunk(
        self, taken: Mask, wanted: Mask, inputs: Values
    ) -> tuple[Any, list[Any]]:
        """Returns a layer for the units that are left, and its weights."""

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
        self.shrinks = len(convs) == 1

    def constants(self, inputs: Values) -> Values | None:
        if len(self.convs) > 1:
            return None
        [conv] = self.convs
        inputs = np.repeat(inputs, self.of)
        kernel = self._array(conv.kernel)
        reached = any_along(kernel, 0, 1)
        not_known = np.isnan(inputs)
        if conv.padding != "valid":
            not_known |= inputs != 0  # zeros surround the map
        varies = reached[not_known].any(axis=0)
        sums = self._bias(conv) + np.nan_to_num(inputs) @ kernel.sum(
            axis=(0, 1)
        )
        if self.unit == 1:
            return np.where(varies, np.nan, _apply(conv.activation, sums))
        silent = ~varies & (sums == 0)
        return np.where(silent.reshape(-1, self.unit).all(axis=1), 0.0, np.nan)

    def needs(self, wanted: Mask, inputs: Values) -> Mask:
        channels = np.repeat(wanted, self.unit)
        needed = np.zeros(len(inputs) * self.of, bool)
        for conv in self.convs:
            reached = any_along(self._array(conv.kernel), 0, 1)
            if self.shrinks:
                reached = reached[:, channels]
            needed |= reached.any(axis=1)
        folded = inputs == 0
        if self.convs[0].padding == "valid" and self._is_float32:
            folded = ~np.isnan(inputs)
        return needed.reshape(-1, self.of).any(axis=1) & ~folded

    def shrunk(
        self, taken: Mask, wanted: Mask, inputs: Values
    ) -> tuple[Any, list[Any]]:
        rows = np.repeat(taken, self.of)
        channels = np.repeat(wanted, self.unit)
        left_out = np.repeat(
            np.where(taken, 0.0, np.nan_to_num(inputs)), self.of
        )
        weights = []
        for conv in self.convs:
            kernel = self._array(conv.kernel)
            bias = self._bias(conv) + left_out @ kernel.sum(axis=(0, 1))
            if not self.shrinks:
                channels = np.ones(len(bias), bool)
            weights.append(kernel[:, :, rows][..., channels])
            if conv.use_bias or bias[channels].any():
                weights.append(bias[channels].astype(kernel.dtype))
        changes: dict[str, Any] = {}
        if self.shrinks:
            changes[self.num_units] = int(wanted.sum())
            changes["use_bias"] = len(weights) == 2
        return self._changed(**changes), weights

    def _bias(self, conv: Any) -> NDArray[Any]:
        if not conv.use_bias:
            return np.zeros(conv.kernel.shape[-1])
        return self._array(conv.bias).astype("float64")

    @property
    def _is_float32(self) -> bool:
        # In half precision the bias would be rounded otherwise than the sum.
        return bool(self.layer.compute_dtype == "float32")


class Depthwise(Rule):
    """Depthwise PrimaryCaps: each channel becomes one component."""

    def constants(self, inputs: Values) -> Values | None:
        conv = self.layer.conv
        silent = ~any_along(self._array(conv.kernel), 0, 1, 3) | (inputs == 0)
        if conv.use_bias:
            silent &= self._array(conv.bias) == 0
        whole = silent.reshape(-1, self.layer.dim).all(axis=1)
        return np.where(whole, 0.0, np.nan)

    def needs(self, wanted: Mask, inputs: Values) -> Mask:
        return np.repeat(wanted, self.layer.dim)

    def follows(self, taken: Mask, wanted: Mask) -> Mask:
        return wanted | taken.reshape(-1, self.layer.dim).any(axis=1)

    def shrunk(
        self, taken: Mask, wanted: Mask, inputs: Values
    ) -> tuple[Any, list[Any]]:
        kernel, *bias = self.layer.get_weights()
        weights = [kernel[:, :, taken], *(array[taken] for array in bias)]
        return self._changed(num_types=int(wanted.sum())), weights


class EachUnit(Rule):
    """A layer that treats each unit by itself, with a weight for each or none.

    `changes` are settings that hold for any number of units.
    """

    def __init__(self, layer: Any, shape: Shape, **changes: Any):
        super().__init__(layer)
        self.shape = shape
        self.changes = changes

    def constants(self, inputs: Values) -> Values | None:
        if len(self.shape) == 4:
            outputs = _apply(self._call, inputs)
            return np.where(np.isnan(inputs), np.nan, outputs)
        if np.any(ops.convert_to_numpy(self._call(ops.zeros((1,) * 5)))):
            return None
        return np.where(inputs == 0, 0.0, np.nan)

    def needs(self, wanted: Mask, inputs: Values) -> Mask:
        return wanted

    def follows(self, taken: Mask, wanted: Mask) -> Mask:
        return wanted | taken

    def shrunk(
        self, taken: Mask, wanted: Mask, inputs: Values
    ) -> tuple[Any, list[Any]]:
        weights = [array[wanted] for array in self.layer.get_weights()]
        return self._changed(**self.changes), weights

    def _call(self, inputs: Any) -> Any:
        return self.layer(inputs, training=False)


def any_along(weight: NDArray[Any], *axes: int) -> Mask:
    """Returns where something along the axes is not zero."""
    return np.asarray(weight.any(axis=axes))


def _apply(function: Callable[[Any], Any], units: Values) -> Values:
    """Applies a function of feature maps to constant channels."""
    pixel = ops.convert_to_tensor(np.reshape(units, (1, 1, 1, -1)), "float32")
    result = function(pixel)
    return np.ravel(np.asarray(ops.convert_to_numpy(result))).astype("float64")

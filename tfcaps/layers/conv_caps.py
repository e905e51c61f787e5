"""The convolutional capsule layer."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps.layers.routed import RoutedCaps
from tfcaps.layers.units import LayerUnits
from tfcaps.layers.windows import Windows, WindowVotes, as_pair
from tfcaps.ops import MAP, Tensor, check_axes, check_one_of, check_positive
from tfcaps.routing import EMRouting
from tfcaps.routing.factored_votes import Block, materialize_votes
from tfcaps.routing.votes import Votes


@keras.saving.register_keras_serializable(package="tfcaps")
class ConvCaps(RoutedCaps):
    """Connects the capsules of each window with the parents at its position.

    Child type `t` at place `(p, q)` of a window votes `û = u W_pqtj` for parent
    type `j`. The matrices, the weight `transformation` `[p, q, t, j, k, d]`,
    are the same for all windows. Each window is routed alone: its children
    choose among its `num_types` parents. Only `EMRouting` lets the parents of
    all windows that hold a child compete for it.

    Args:
        num_types: Int. Parent types at each position.
        dim: Int. Components of a parent.
        kernel_size: Int or two ints. Sides of a window.
        strides: Int or two ints. Steps of the window. Defaults to `1`.
        padding: `"valid"`, or `"same"` by TensorFlow's rule; children outside
            of the map have zero poses and activations. Defaults to `"valid"`.
        routing: As in `ClassCaps`. Defaults to `3`.
        **kwargs: Other arguments of `ClassCaps`, but for `share` and
            `coordinates`.

    Call arguments and errors are those of `ClassCaps`.

    Input shape:
        `[b, h, w, t, k]`, and activations `[b, h, w, t]`.

    Output shape:
        Poses `[b, h', w', num_types, dim]`. Activations `[b, h', w',
        num_types]` and couplings `[b, h', w', p, q, t, num_types]`, float32.

    Example:

    >>> import numpy as np
    >>> children = np.zeros((2, 6, 6, 4, 8), "float32")
    >>> tuple(ConvCaps(3, 16, kernel_size=3, strides=2)(children).shape)
    (2, 2, 2, 3, 16)

    References:
        - Hinton, Sabour, Frosst, 2018, "Matrix capsules with EM routing"
    """

    def __init__(
        self,
        num_types: int,
        dim: int,
        kernel_size: int | tuple[int, int],
        strides: int | tuple[int, int] = 1,
        padding: str = "valid",
        routing: Any = 3,
        **kwargs: Any,
    ):
        check_positive(num_types=num_types, dim=dim)
        check_one_of(("valid", "same"), padding=padding)
        super().__init__(num_types, dim, routing, **kwargs)
        self.num_types = num_types
        self.kernel_size = as_pair(kernel_size, "kernel_size")
        self.strides = as_pair(strides, "strides")
        self.padding = padding

    def build(self, input_shape: Any) -> None:
        check_axes(self, input_shape, "capsules", *MAP, known=True)
        self._windows(input_shape)
        matrices = (*self.kernel_size, input_shape[-2])
        self._add_weights(matrices, input_shape[-1], math.prod(matrices))

    def _windows(self, input_shape: Any) -> Windows:
        sides = tuple(input_shape[1:3])
        return Windows(sides, self.kernel_size, self.strides, self.padding)

    def _output_shapes(self, input_shape: Any) -> tuple[Any, Any]:
        grid = (input_shape[0], *self._windows(input_shape).shape)
        members = (*self.kernel_size, input_shape[-2])
        return (*grid, self.num_types), (*grid, *members, self.num_types)

    def _arranged(self, activations: Tensor) -> Tensor:
        windows = self._windows(activations.shape)
        children = math.prod(self.kernel_size) * activations.shape[-1]
        return ops.reshape(windows.cut(activations), (-1, children))

    def _blocks(self, inputs: Tensor, maps: Tensor) -> list[Block]:
        """Returns a block for each place, of votes `[b h' w', p q t, j, d]`."""
        *_, types, components = inputs.shape
        maps = ops.reshape(maps, (-1, types, *maps.shape[-3:]))
        parts = self._windows(inputs.shape).parts(inputs)
        return [
            Block(ops.reshape(part, (-1, 1, types, components)), maps[place])
            for place, part in enumerate(parts)
        ]

    def _materialized(self, blocks: list[Block], input_shape: Any) -> Votes:
        windows = self._windows(input_shape)
        return WindowVotes(materialize_votes(blocks), windows, input_shape[-2])

    @property
    def receptive_windows(self) -> list[Any]:
        windows: list[Any] = [(self.kernel_size, self.strides, self.padding)]
        if isinstance(self.routing, EMRouting):
            # Each further iteration looks at all windows that share a child.
            sides = zip(self.kernel_size, self.strides, strict=True)
            reach = tuple(2 * ((k - 1) // step) + 1 for k, step in sides)
            windows += [(reach, 1, "same")] * (self.routing.iterations - 1)
        return windows

    def multiply_adds(self, input_shape: Any) -> int:
        windows = math.prod(self._windows(input_shape).shape)
        children = math.prod((*self.kernel_size, input_shape[-2]))
        each = self._routed_multiply_adds(children, input_shape[-1])
        return windows * each

    def layer_units(self, input_shapes: Any) -> LayerUnits | None:
        types = np.arange(input_shapes[0][3])
        return self._units(
            input_shapes,
            "num_types",
            np.tile(types, math.prod(self.kernel_size)),
            2,
            self.routing.ignores_silent,
        )

"""The convolutional capsule layer."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps.layers.routed import RoutedCaps, child_activations, select_outputs
from tfcaps.layers.units import LayerUnits
from tfcaps.layers.windows import Windows, WindowVotes, as_pair
from tfcaps.ops import Tensor, check_positive
from tfcaps.routing import Block, EMRouting, Votes, materialize_votes


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
        use_bias: Bool. Give the routing its bias, if it has one, which
            `EMRouting` has not; it is the same at all positions. Defaults to
            `True`.
        share_types: Bool. Use the same matrices for all child types. Defaults
            to `False`.
        matrix: Bool. As in `ClassCaps`. Defaults to `False`.
        transformation_initializer: As in `ClassCaps`.
        bias_initializer: As in `ClassCaps`.
        transformation_regularizer: As in `ClassCaps`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Child poses.
        activations: Child activations `[b, h, w, t]`. Defaults to the lengths
            of the poses.
        return_activations: Bool. Return `(poses, activations)`. Defaults to
            `False`.
        return_couplings: Bool. Return `(poses, couplings)`, or all three.
            Defaults to `False`.

    Input shape:
        `[b, h, w, t, k]`.

    Output shape:
        Poses `[b, h', w', num_types, dim]`. Activations `[b, h', w',
        num_types]` and couplings `[b, h', w', p, q, t, num_types]`, float32.

    Raises:
        ValueError: If an argument is out of range, or the input's shape does
            not fit.

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
        use_bias: bool = True,
        *,
        share_types: bool = False,
        matrix: bool = False,
        transformation_initializer: Any = None,
        bias_initializer: Any = None,
        transformation_regularizer: Any = None,
        **kwargs: Any,
    ):
        check_positive(num_types=num_types, dim=dim)
        if padding not in ("valid", "same"):
            raise ValueError(
                '`padding` must be "valid" or "same". Received: '
                f"padding={padding!r}."
            )
        super().__init__(
            num_types,
            dim,
            routing,
            use_bias,
            matrix,
            transformation_initializer,
            bias_initializer,
            transformation_regularizer,
            **kwargs,
        )
        self.num_types = num_types
        self.kernel_size = as_pair(kernel_size, "kernel_size")
        self.strides = as_pair(strides, "strides")
        self.padding = padding
        self.share_types = share_types

    def build(self, input_shape: Any) -> None:
        if len(input_shape) != 5 or None in input_shape[1:]:
            raise ValueError(
                f"{type(self).__name__} takes capsules [batch, rows, columns, "
                "types, components], all known but the batch. Received: "
                f"input_shape={tuple(input_shape)}."
            )
        self._windows(input_shape)
        types, components = input_shape[-2:]
        matrices: tuple[int, ...] = self.kernel_size
        if not self.share_types:
            matrices = (*matrices, types)
        children = math.prod(self.kernel_size) * types
        self._add_weights(matrices, components, children)

    def _windows(self, input_shape: Any) -> Windows:
        _, rows, columns, *_ = input_shape
        return Windows(
            rows, columns, self.kernel_size, self.strides, self.padding
        )

    def call(
        self,
        inputs: Tensor,
        activations: Tensor | None = None,
        return_activations: bool = False,
        return_couplings: bool = False,
    ) -> Any:
        windows = self._windows(inputs.shape)
        types = inputs.shape[-2]
        members = (*self.kernel_size, types)
        children = math.prod(members)
        activations = child_activations(inputs, activations)
        activations = ops.reshape(windows.cut(activations), (-1, children))
        routed = self._route(
            inputs, activations, return_couplings=return_couplings
        )
        parents = (-1, *windows.shape, self.num_types)
        couplings = (-1, *windows.shape, *members, self.num_types)
        poses = ops.cast(routed.poses, self.compute_dtype)
        return select_outputs(
            ops.reshape(poses, (*parents, self.dim)),
            ops.reshape(ops.cast(routed.activations, "float32"), parents),
            ops.reshape(ops.cast(routed.couplings, "float32"), couplings),
            return_activations,
            return_couplings,
        )

    def _num_votes(self, input_shape: Any) -> int:
        windows = math.prod(self._windows(input_shape).shape)
        children = math.prod(self.kernel_size) * input_shape[-2]
        return windows * children * self.num_types * self.dim

    def _blocks(self, inputs: Tensor, maps: Tensor) -> list[Block]:
        """Returns a block for each place of a window; all windows are a batch.

        Their votes are `[b * h' * w', p * q * t, j, d]`.
        """
        windows = self._windows(inputs.shape)
        *_, types, components = inputs.shape
        maps = ops.reshape(
            maps, (math.prod(self.kernel_size), -1, *maps.shape[-3:])
        )
        # Types that share a matrix differ as positions do.
        shape = (-1, types // maps.shape[1], maps.shape[1], components)
        return [
            Block(ops.reshape(part, shape), maps[place])
            for place, part in enumerate(windows.parts(inputs))
        ]

    def _materialized(self, blocks: list[Block], input_shape: Any) -> Votes:
        windows = self._windows(input_shape)
        return WindowVotes(materialize_votes(blocks), windows, input_shape[-2])

    def compute_output_spec(
        self,
        inputs: Any,
        activations: Any = None,
        return_activations: bool = False,
        return_couplings: bool = False,
    ) -> Any:
        batch, *_, types, _ = inputs.shape
        windows = (batch, *self._windows(inputs.shape).shape)
        parents = (*windows, self.num_types)
        couplings = (*windows, *self.kernel_size, types, self.num_types)
        return select_outputs(
            keras.KerasTensor((*parents, self.dim), dtype=self.compute_dtype),
            keras.KerasTensor(parents, dtype="float32"),
            keras.KerasTensor(couplings, dtype="float32"),
            return_activations,
            return_couplings,
        )

    def compute_output_shape(self, input_shape: Any) -> Any:
        windows = self._windows(input_shape).shape
        return (input_shape[0], *windows, self.num_types, self.dim)

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

    def units(self, input_shapes: Any) -> LayerUnits | None:
        types = np.arange(input_shapes[0][3])
        return self._units(
            input_shapes,
            "num_types",
            np.tile(types, math.prod(self.kernel_size)),
            None if self.share_types else 2,
            self.routing.ignores_silent,
        )

    def get_config(self) -> dict[str, Any]:
        config = {
            "num_types": self.num_types,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "padding": self.padding,
            "share_types": self.share_types,
        }
        return {**super().get_config(), **config}

"""The 3-D convolutional capsule layer of DeepCaps."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps import routing as routings
from tfcaps.configs import Configured
from tfcaps.layers.routed import select_outputs, settings_of_parents
from tfcaps.layers.units import LayerUnits, Slice, channels_of
from tfcaps.ops import (
    MAP,
    Tensor,
    check_axes,
    check_one_of,
    check_positive,
    squash,
)
from tfcaps.routing import DynamicRouting, execution
from tfcaps.routing.votes import Votes


@keras.saving.register_keras_serializable(package="tfcaps")
class ConvCaps3D(Configured, keras.layers.Layer):
    """Lets each child type vote by one convolution, and routes whole maps.

    A child is the whole map of one type. One convolution of 3x3, with a kernel
    that all child types share, makes its votes for all parent types at all
    positions. (The published layer is a 3-D convolution whose depth and stride
    in depth are the components of a child, hence the name.) The parents of all
    types and positions compete for a child.

    Args:
        num_types: Int. Parent types at each position.
        dim: Int. Components of a parent.
        routing: As in `ClassCaps`; one whose only weight is a bias of the
            parents' shape, or `DynamicRouting` for `squash="map"`. It gets no
            activations of children, so `ScaledDistanceRouting` does not shorten
            their votes. Defaults to `3`.
        bias: `"routing"` for one `[num_types, dim]` that is added in every
            iteration and starts at 0.1, `"votes"` for a bias of the
            convolution, or `None`. Defaults to `"routing"`.
        squash: `"capsule"`, or `"map"` as published: all capsules of a type
            share one squash, so that their whole map is shorter than 1.
            Defaults to `"capsule"`.
        depth: Int or `None`. How many components of a child vote: the first
            `depth`. One of the published codes has 3. Defaults to all.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Child poses.
        return_couplings: Bool. Return `(poses, couplings)`. Defaults to
            `False`.

    Input shape:
        `[b, h, w, t, k]`.

    Output shape:
        Poses `[b, h, w, num_types, dim]`. Couplings `[b, h, w, t, num_types]`,
        float32, summing to 1 over positions and parent types.

    Raises:
        ValueError: If an argument or the input's shape does not fit.

    Example:

    >>> import numpy as np
    >>> children = np.zeros((2, 4, 4, 6, 8), "float32")
    >>> tuple(ConvCaps3D(5, 16)(children).shape)
    (2, 4, 4, 5, 16)

    References:
        - Rajasegaran et al., 2019, https://arxiv.org/abs/1904.09546
    """

    # A child has thousands of couplings: rounded, all would become zero.
    quantizable = False
    gone = {
        **{"kernel_initializer": ..., "bias_initializer": ...},
        **{"kernel_size": 3, "padding": "same"},
    }
    kernel_size, padding = 3, "same"

    def __init__(
        self,
        num_types: int,
        dim: int,
        routing: Any = 3,
        *,
        bias: str | None = "routing",
        squash: str = "capsule",
        depth: int | None = None,
        **kwargs: Any,
    ):
        check_positive(num_types=num_types, dim=dim)
        check_one_of((None, "routing", "votes"), bias=bias)
        check_one_of(("capsule", "map"), squash=squash)
        super().__init__(**kwargs)
        self.num_types = num_types
        self.dim = dim
        self.routing = routings.get(routing)
        weights = self.routing.weights(1, 2, 3)
        if set(weights) != {"bias"} or weights["bias"].shape != (2, 3):
            raise ValueError(
                "ConvCaps3D takes a routing whose only weight is a bias of its "
                f"parents. Received: {type(self.routing).__name__}."
            )
        if squash == "map" and type(self.routing) is not DynamicRouting:
            raise ValueError(
                '`squash="map"` is for DynamicRouting. Received: '
                f"{type(self.routing).__name__}."
            )
        self.bias_kind = bias
        self.squash = squash
        self.depth = depth
        self.conv = keras.layers.Conv2D(
            num_types * dim,
            self.kernel_size,
            padding=self.padding,
            data_format="channels_last",
            use_bias=bias == "votes",
            dtype=self.dtype_policy,
            trainable=self.trainable,
            name="conv",
        )

    def build(self, input_shape: Any) -> None:
        check_axes(self, input_shape, "capsules", *MAP, known=True)
        depth = self.depth or input_shape[-1]
        if not 1 <= depth <= input_shape[-1]:
            raise ValueError(
                "`depth` must be from 1 to the components of a child. Received:"
                f" depth={depth}, input_shape={tuple(input_shape)}."
            )
        self.conv.build((None, *input_shape[1:3], depth))
        self.bias = None
        if self.bias_kind == "routing":
            self.bias = self.add_weight(
                shape=(self.num_types, self.dim),
                initializer=keras.initializers.Constant(0.1),
                autocast=False,  # routing is float32 whatever the policy
                name="bias",
            )

    def call(self, inputs: Tensor, return_couplings: bool = False) -> Any:
        _, rows, columns, types, _ = inputs.shape
        children = ops.transpose(inputs[..., : self.depth], (0, 3, 1, 2, 4))
        depth = children.shape[-1]
        votes = self.conv(ops.reshape(children, (-1, rows, columns, depth)))
        parents = rows * columns * self.num_types
        votes = ops.reshape(votes, (-1, types, parents, self.dim))
        routed = execution.route(
            self._routing_of(rows * columns),
            Votes,
            votes,
            (),
            self._weights(rows * columns),
            types * parents * self.dim,
            return_couplings,
        )
        grid = (rows, columns, self.num_types)
        poses = ops.cast(routed.poses, self.compute_dtype)
        couplings = ops.cast(routed.couplings, "float32")
        couplings = ops.reshape(couplings, (-1, types, *grid))
        poses = ops.reshape(poses, (-1, *grid, self.dim))
        couplings = ops.transpose(couplings, (0, 2, 3, 1, 4))
        return select_outputs((poses, couplings), [return_couplings])

    def _routing_of(self, positions: int) -> Any:
        if self.squash == "capsule":
            return self.routing
        return _MapRouting(positions, **self.routing.get_config())

    def _weights(self, positions: int) -> dict[str, Tensor]:
        """Returns a bias `[h * w * num_types, dim]` for the routing, if any."""
        if self.bias is None:
            return {}
        return {"bias": ops.tile(self.bias, (positions, 1))}

    def compute_output_spec(
        self, inputs: Any, return_couplings: bool = False
    ) -> Any:
        shape = self.compute_output_shape(inputs.shape)
        grid = (*shape[:3], inputs.shape[3], self.num_types)
        poses = keras.KerasTensor(shape, dtype=self.compute_dtype)
        couplings = keras.KerasTensor(grid, dtype="float32")
        return select_outputs((poses, couplings), [return_couplings])

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (*input_shape[:3], self.num_types, self.dim)

    # Parents at all positions compete for a child.
    receptive_windows = (None,)

    def inner_layers(self, input_shape: Any) -> list[Any]:
        batch, rows, columns, types, components = input_shape
        depth = (batch, rows, columns, self.depth or components)
        return [(self.conv, depth)] * types

    def multiply_adds(self, input_shape: Any) -> int:
        shape = self.compute_output_shape(input_shape)
        votes = input_shape[3] * math.prod(shape[1:])
        return votes * self.routing.vote_passes

    def layer_units(self, input_shapes: Any) -> LayerUnits | None:
        # All types of children share the kernel: one that votes zero is 0.
        if not self.routing.ignores_silent or self.bias_kind == "votes":
            return None
        leave = hasattr(self.routing, "silent_parents")
        _, rows, columns, *_ = self.compute_output_shape(input_shapes[0])
        made = channels_of(self.conv, self.dim)
        if self.bias is not None:
            made.append(Slice(self.bias, 0, np.arange(self.num_types)))
        return LayerUnits(
            made,
            settings=settings_of_parents(
                self.routing, "num_types", rows * columns
            ),
            stay=not leave,
            compete=True,
            value=0.0 if leave else np.nan,
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "bias": self.bias_kind}


class _MapRouting(DynamicRouting):
    """Dynamic routing in which all capsules of a type share one squash."""

    def __init__(self, positions: int, **settings: Any):
        super().__init__(**settings)
        self.positions = positions

    def _squash(self, sums: Tensor) -> Tensor:
        _, parents, dim = sums.shape
        types = parents // self.positions
        maps = ops.reshape(sums, (-1, self.positions, types, dim))
        squashed = squash(maps, axis=(1, 3))
        return ops.reshape(squashed, (-1, parents, dim))

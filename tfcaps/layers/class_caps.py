"""The fully connected capsule layer."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps.layers.routed import RoutedCaps, child_activations
from tfcaps.layers.units import LayerUnits
from tfcaps.ops import Tensor, check_one_of, check_positive, class_targets
from tfcaps.routing.factored_votes import Block, materialize_votes
from tfcaps.routing.votes import Votes


@keras.saving.register_keras_serializable(package="tfcaps")
class ClassCaps(RoutedCaps):
    """Connects every child capsule with every parent and routes the votes.

    Child `i` votes `û_ij = u_i W_ij` for parent `j`, where `W` is the weight
    `transformation`; the routing turns votes into parent poses. The layer owns
    its weights too, such as the `bias` of most.

    Args:
        num_capsules: Int. Number of parents; for the last layer the classes.
        dim: Int. Components of a parent.
        routing: Int, name, config or `tfcaps.routing.Routing`. An int is
            dynamic routing with that many iterations. Defaults to `3`.
        use_bias: Bool. Give the routing its bias, if it has one. Defaults to
            `True`.
        share: `None` for a matrix per child and parent, `"type"` for one per
            child type and parent at all positions, which needs spatial input,
            `"all"` for one per parent. Defaults to `None`.
        matrix: Bool. Poses are square matrices, flattened row by row; a vote is
            the child's matrix times the weight. Defaults to `False`.
        coordinates: Bool. Add each child's relative position to the last column
            of its votes: `(column + 1/2) / w` to row 0, `(row + 1/2) / h` to
            row 1. Needs spatial input and `matrix`. Defaults to `False`.
        transformation_initializer: Initializer of the matrices. Defaults to a
            normal distribution with standard deviation 0.1.
        bias_initializer: Initializer of the bias. Defaults to the routing's,
            which is the constant 0.1 for most.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Child poses.
        activations: Child activations, `inputs` without its last axis. Defaults
            to the lengths of the poses.
        labels: Classes `[b]`, or targets `[b, num_capsules]`. Only
            `RegularizedRouting` learns from them, and only in training.
        return_activations: Bool. Return `(poses, activations)`, which matters
            where they are not the poses' lengths. Defaults to `False`.
        return_couplings: Bool. Return `(poses, couplings)`, or all three.
            Defaults to `False`.

    Input shape:
        `[b, i, k]`, or `[b, h, w, t, k]`, flattened in the order row, column,
        type.

    Output shape:
        Poses `[b, num_capsules, dim]`. Activations `[b, num_capsules]` and
        couplings `[b, i, num_capsules]`, float32.

    Raises:
        ValueError: If an argument or the input's shape does not fit.

    Example:

    >>> import numpy as np
    >>> children = np.zeros((2, 6, 6, 4, 8), "float32")
    >>> tuple(ClassCaps(10, 16, routing=3)(children).shape)
    (2, 10, 16)

    References:
        - Sabour, Frosst, Hinton, 2017, https://arxiv.org/abs/1710.09829,
          eq. 2 and section 4
        - Gu, Tresp, 2020, https://arxiv.org/abs/2003.06854 (`share="all"`)
        - Hinton, Sabour, Frosst, 2018, "Matrix capsules with EM routing"
          (`matrix`, `coordinates`)
    """

    def __init__(
        self,
        num_capsules: int,
        dim: int,
        routing: Any = 3,
        use_bias: bool = True,
        share: str | None = None,
        *,
        matrix: bool = False,
        coordinates: bool = False,
        transformation_initializer: Any = None,
        bias_initializer: Any = None,
        **kwargs: Any,
    ):
        check_positive(num_capsules=num_capsules, dim=dim)
        check_one_of((None, "type", "all"), share=share)
        if coordinates and not (matrix and dim > 1):
            raise ValueError(
                "`coordinates` are added to matrices of at least two rows. "
                f"Received: matrix={matrix}, dim={dim}."
            )
        super().__init__(
            num_capsules,
            dim,
            routing,
            use_bias,
            matrix,
            transformation_initializer,
            bias_initializer,
            **kwargs,
        )
        self.num_capsules = num_capsules
        self.share = share
        self.coordinates = coordinates

    def build(self, input_shape: Any) -> None:
        self._check_input_shape(input_shape)
        children = math.prod(input_shape[1:-1])
        matrices: tuple[int, ...] = (children,)
        if self.share is not None:
            matrices = (input_shape[-2],) if self.share == "type" else ()
        self._add_weights(matrices, input_shape[-1], children)

    def call(
        self,
        inputs: Tensor,
        activations: Tensor | None = None,
        labels: Tensor | None = None,
        *,
        return_activations: bool = False,
        return_couplings: bool = False,
        training: bool | None = None,
    ) -> Any:
        if training and self.trainable and labels is not None:
            self._learn(inputs, labels)
        return super().call(
            inputs,
            activations,
            return_activations=return_activations,
            return_couplings=return_couplings,
        )

    def _output_shapes(self, input_shape: Any) -> tuple[Any, Any]:
        batch, *children, _ = input_shape
        parents = (batch, self.num_capsules)
        return parents, (batch, math.prod(children), self.num_capsules)

    def _arranged(self, activations: Tensor) -> Tensor:
        return ops.reshape(activations, (-1, math.prod(activations.shape[1:])))

    def _blocks(self, inputs: Tensor, maps: Tensor) -> list[Block]:
        *_, types, components = inputs.shape
        children = math.prod(inputs.shape[1:-1])
        # Children of one position differ in their matrix.
        types = {None: children, "type": types, "all": 1}[self.share]
        poses = ops.reshape(inputs, (-1, children // types, types, components))
        if self.share == "all":
            maps = ops.expand_dims(maps, 0)
        return [Block(poses, maps)]

    @property
    def _can_factor(self) -> bool:
        return not self.coordinates

    def _materialized(self, blocks: list[Block], input_shape: Any) -> Votes:
        if not self.coordinates:
            return super()._materialized(blocks, input_shape)
        votes = materialize_votes(blocks)
        _, rows, columns, types, _ = input_shape
        offsets = _coordinates(rows, columns, types, self.dim)
        votes += ops.cast(offsets, votes.dtype)
        return Votes(votes, parents_first=True)

    def _learn(self, inputs: Tensor, labels: Tensor) -> None:
        routing: Any = self.routing
        if routing.learns_from_labels:
            votes = self._votes(inputs, self.transformation)
            targets = class_targets(labels, self.num_capsules, "float32")
            coefficients = self.coefficients
            coefficients.assign(routing.step(votes, coefficients, targets))

    def children_shape(self, input_shape: Any) -> tuple[int, ...]:
        """Returns the shape of the children: `(i,)` or `(h, w, t)`."""
        return tuple(input_shape[1:-1])

    def voting_activations(
        self, inputs: Tensor, activations: Tensor | None = None
    ) -> Tensor:
        """Returns activations `[b, i]`, float32, 0 of those that cast no vote.

        Arguments are as in the call.
        """
        activations = self._arranged(child_activations(inputs, activations))
        activations = ops.cast(activations, "float32")
        if not self.can_be_silent or self.share == "all":
            return activations
        votes = ops.any(self.transformation != 0, axis=(-3, -2, -1))
        votes = ops.tile(votes, activations.shape[1] // votes.shape[0])
        return ops.where(votes, activations, 0.0)

    @property
    def can_be_silent(self) -> bool:
        """True if a child whose matrices are zero moves no parent."""
        return self.routing.ignores_silent and not self.coordinates

    receptive_windows = (None,)

    def multiply_adds(self, input_shape: Any) -> int:
        children = math.prod(self.children_shape(input_shape))
        return self._routed_multiply_adds(children, input_shape[-1])

    def layer_units(self, input_shapes: Any) -> LayerUnits | None:
        grid = self.children_shape(input_shapes[0])
        types = np.arange(math.prod(grid)) % grid[-1]
        # A matrix that all children share is nobody's.
        axis = None if self.share == "all" else 0
        return self._units(
            input_shapes, "num_capsules", types, axis, self.can_be_silent
        )

    def _check_input_shape(self, input_shape: Any) -> None:
        shape = tuple(input_shape)
        if len(shape) not in (3, 5) or None in shape[1:]:
            raise ValueError(
                f"{type(self).__name__} takes capsules [batch, children, "
                "components] or [batch, rows, columns, types, components], all "
                f"known but the batch. Received: input_shape={shape}."
            )
        if len(shape) == 3 and (self.share == "type" or self.coordinates):
            name = "coordinates" if self.coordinates else 'share="type"'
            raise ValueError(
                f"`{name}` needs spatial capsules [batch, rows, columns, "
                f"types, components]. Received: input_shape={shape}."
            )


def _coordinates(rows: int, columns: int, types: int, dim: int) -> Any:
    """Returns the offsets of votes by position, `[i, d]`."""
    side = math.isqrt(dim)
    offsets = np.zeros((rows, columns, types, side, side), "float32")
    across = (np.arange(columns) + 0.5) / columns
    down = (np.arange(rows) + 0.5) / rows
    offsets[..., 0, -1] = across[None, :, None]
    offsets[..., 1, -1] = down[:, None, None]
    return offsets.reshape(-1, dim)


# The same layer under the name that is usual where parents are not classes.
FcCaps = ClassCaps

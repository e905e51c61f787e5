"""Base of the routed layers with matrices: weights, votes, return values."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps import routing as routings
from tfcaps.configs import Configured
from tfcaps.layers.units import Ids, LayerUnits, Mask, Slice
from tfcaps.ops import Tensor, length
from tfcaps.routing import execution
from tfcaps.routing.factored_votes import (
    Block,
    FactoredVotes,
    materialize_votes,
)
from tfcaps.routing.votes import Votes


class RoutedCaps(Configured, keras.layers.Layer):
    """A layer whose children vote by matrices; base of the public ones.

    Subclasses arrange the children in `_blocks` and say what shapes there are;
    the votes and the routing of all are here. Arguments are those of
    `ClassCaps`.
    """

    gone = {"transformation_regularizer": None, "share_types": False}

    def __init__(
        self,
        num_parents: int,
        dim: int,
        routing: Any,
        use_bias: bool = True,
        matrix: bool = False,
        transformation_initializer: Any = None,
        bias_initializer: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.dim = dim
        self.routing = routings.get(routing)
        self.use_bias = use_bias
        self.matrix = matrix
        self.transformation_initializer = keras.initializers.get(
            transformation_initializer
        ) or keras.initializers.RandomNormal(stddev=0.1)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self._num_parents = num_parents
        if matrix and math.isqrt(dim) ** 2 != dim:
            raise ValueError(
                "`dim` of matrix capsules must be a square, such as 16 for 4x4."
                f" Received: dim={dim}."
            )

    def _add_weights(
        self, matrices: tuple[int, ...], child_dim: int, children: int
    ) -> None:
        """Makes `transformation` `[*matrices, j, k, d]` and the routing's."""
        rows = math.isqrt(self.dim) if self.matrix else 1
        if self.matrix and child_dim != self.dim:
            raise ValueError(
                "Matrix capsules keep their shape. Received: children of "
                f"{child_dim} components for dim={self.dim}."
            )
        self.transformation = self.add_weight(
            shape=(
                *matrices,
                self._num_parents,
                child_dim // rows,
                self.dim // rows,
            ),
            initializer=self.transformation_initializer,
            name="transformation",
        )
        self._routing_weights = []
        self.bias = None
        weights = self.routing.weights(children, self._num_parents, self.dim)
        for name, weight in weights.items():
            if name == "bias" and not self.use_bias:
                continue
            initializer = weight.initializer
            if isinstance(initializer, keras.initializers.Initializer):
                # One routing may serve several layers: each draws its own.
                initializer = initializer.clone()
            if name == "bias" and self.bias_initializer is not None:
                initializer = self.bias_initializer
            variable = self.add_weight(
                shape=weight.shape,
                initializer=initializer,
                trainable=weight.trainable,
                autocast=False,  # routing is float32 whatever the policy
                # What the layer moves itself, replicas agree on as a mean.
                aggregation="none" if weight.trainable else "mean",
                name=name,
            )
            setattr(self, name, variable)
            self._routing_weights.append(name)

    def call(
        self,
        inputs: Tensor,
        activations: Tensor | None = None,
        *,
        return_activations: bool = False,
        return_couplings: bool = False,
    ) -> Any:
        activations = child_activations(inputs, activations)
        transformation, weights = self._weights()
        routed = execution.route(
            self.routing,
            self._votes,
            inputs,
            (transformation,),
            {"activations": self._arranged(activations), **weights},
            self._num_votes(inputs.shape),
            return_couplings,
        )
        (_, *parents), (_, *couplings) = self._output_shapes(inputs.shape)
        poses = ops.cast(routed.poses, self.compute_dtype)
        active = ops.cast(routed.activations, "float32")
        shares = ops.cast(routed.couplings, "float32")
        outputs = (
            ops.reshape(poses, (-1, *parents, self.dim)),
            ops.reshape(active, (-1, *parents)),
            ops.reshape(shares, (-1, *couplings)),
        )
        return select_outputs(outputs, (return_activations, return_couplings))

    def compute_output_spec(
        self,
        inputs: Any,
        *others: Any,
        return_activations: bool = False,
        return_couplings: bool = False,
        **named: Any,
    ) -> Any:
        del others, named  # activations, labels
        parents, couplings = self._output_shapes(inputs.shape)
        outputs = (
            keras.KerasTensor((*parents, self.dim), dtype=self.compute_dtype),
            keras.KerasTensor(parents, dtype="float32"),
            keras.KerasTensor(couplings, dtype="float32"),
        )
        return select_outputs(outputs, (return_activations, return_couplings))

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (*self._output_shapes(input_shape)[0], self.dim)

    def _weights(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the matrices `[..., j, k, d]`, and the routing's weights."""
        names = self._routing_weights
        return self.transformation, {
            name: getattr(self, name) for name in names
        }

    def _votes(self, inputs: Tensor, transformation: Tensor) -> Votes:
        """Returns the votes `[b, i, j, d]` of child poses."""
        blocks = self._blocks(inputs, self._linear_maps(transformation))
        number = self._num_votes(inputs.shape)
        if self._can_factor and execution.stay_factored(
            self.routing, blocks, number
        ):
            return FactoredVotes(blocks)
        return self._materialized(blocks, inputs.shape)

    def _linear_maps(self, weight: Tensor) -> Tensor:
        """Returns the maps `[*matrices, j, k, d]` from poses to votes.

        For flattened matrices the weight is the blocks of a diagonal: one
        product of large matrices is faster than many of small ones.
        """
        if not self.matrix:
            return weight
        rows = math.isqrt(self.dim)
        # A constant: OpenVINO does not know the operation of `ops.eye`.
        diagonal = np.eye(rows).reshape(rows, 1, rows, 1)
        blocks = ops.expand_dims(ops.expand_dims(weight, -2), -4)
        blocks = blocks * ops.cast(diagonal, weight.dtype)
        shape = (*weight.shape[:-2], self.dim, self.dim)
        return ops.reshape(blocks, shape)

    def _num_votes(self, input_shape: Any) -> int:
        """Returns the number of components of a sample's votes."""
        _, couplings = self._output_shapes(input_shape)
        return math.prod(couplings[1:]) * self.dim

    def _output_shapes(self, input_shape: Any) -> tuple[Any, Any]:
        """Returns the shapes of the parents' activations and the couplings."""
        raise NotImplementedError

    def _arranged(self, activations: Tensor) -> Tensor:
        """Returns activations of children as those of votes, `[b, i]`."""
        raise NotImplementedError

    def _blocks(self, inputs: Tensor, maps: Tensor) -> list[Block]:
        """Returns children `[b, p, t, k]` with their maps `[t, j, k, d]`."""
        raise NotImplementedError

    @property
    def _can_factor(self) -> bool:
        """True if votes are no more than the poses times the maps."""
        return True

    def _materialized(self, blocks: list[Block], input_shape: Any) -> Votes:
        """Returns the votes of blocks, held in memory."""
        del input_shape
        return Votes(materialize_votes(blocks), parents_first=True)

    def _routed_multiply_adds(self, children: int, components: int) -> int:
        """Counts the products of votes, and of the passes over them."""
        rows = math.isqrt(self.dim) if self.matrix else 1
        passes = components // rows + self.routing.vote_passes
        return children * self._num_parents * self.dim * passes

    def _units(
        self,
        input_shapes: Any,
        setting: str,
        types: Ids,
        axis: int | None,
        ignores_silent: bool,
    ) -> LayerUnits | None:
        """Returns `layer_units` for parents that the config calls `setting`.

        The transformation has an axis of the children's types, or `None`.
        """
        routing: Any = self.routing
        shape, *others = input_shapes
        active = routing.explicit_activations
        known = len(shape) == 5 if active else ignores_silent
        if not known or others != [shape[:-1]] * active:
            return None
        weight, parents = self.transformation, np.arange(self._num_parents)
        made = [Slice(weight, len(weight.shape) - 3, parents)]
        read = []
        if axis is not None:
            read.append(Slice(weight, axis, types[: weight.shape[axis]]))
        marks = routing.weights(-1, -2, -3)
        for name in self._routing_weights:
            mark, variable = marks[name], getattr(self, name)
            if -2 in mark.shape:
                at = mark.shape.index(-2)
                fill = routing.absent if name == "beta_a" else 0.0
                counts = not mark.per_child
                made.append(Slice(variable, at, parents, fill, counts))
            if mark.per_child:
                read.append(Slice(variable, 0, types, counts=False))
        leave = active or hasattr(routing, "silent_parents")
        return LayerUnits(
            made,
            read,
            settings_of_parents(routing, setting),
            outputs=1 + active,
            stay=not leave,
            compete=True,
            value=0.0 if leave else np.nan,
            active=(int(active), int(active)),
        )


def child_activations(inputs: Tensor, activations: Tensor | None) -> Tensor:
    """Returns activations `[...]` of poses `[..., k]`, by default lengths."""
    if activations is None:
        return length(inputs)
    if tuple(activations.shape)[1:] != tuple(inputs.shape)[1:-1]:
        raise ValueError(
            "`activations` must have the shape of the poses without its last "
            f"axis. Received: activations {tuple(activations.shape)}, poses "
            f"{tuple(inputs.shape)}."
        )
    return activations


def select_outputs(outputs: Sequence[Any], wanted: Sequence[bool]) -> Any:
    """Returns the first output alone, or a tuple of it and those wanted."""
    chosen = (outputs[0], *itertools.compress(outputs[1:], wanted))
    return chosen if chosen[1:] else chosen[0]


def settings_of_parents(
    routing: Any, name: str, places: int = 1
) -> Callable[[Mask], dict[str, Any]]:
    """Returns `LayerUnits.settings` of a layer whose units are parents.

    Those that are left out still compete, as the routing's `silent_parents`,
    but those of activations of their own, which are absent. Each is a parent at
    so many places.
    """

    def settings(left: Mask) -> dict[str, Any]:
        changes: dict[str, Any] = {name: int(left.sum())}
        if not left.all() and not routing.explicit_activations:
            config = routings.serialize(routing)
            more = places * int((~left).sum())
            config["config"] = {
                **config["config"],
                "silent_parents": routing.silent_parents + more,
            }
            changes["routing"] = config
        return changes

    return settings

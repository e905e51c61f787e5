"""The fully connected capsule layer without its silent children."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps.layers.class_caps import ClassCaps
from tfcaps.layers.routed import child_activations
from tfcaps.ops import Tensor


@keras.saving.register_keras_serializable(package="tfcaps")
class CompactCaps(ClassCaps):
    """ClassCaps without the children that cast no votes.

    A child whose transformation towards every parent is zero votes zero for all
    of them and moves none. `tfcaps.rem.compact` replaces `ClassCaps` by this
    layer, which selects the other children from its input and routes only
    these. It does the same with children of activation 0 that vote zero, where
    the routing ignores these, as EM does. If couplings are wanted, it also
    routes one child that votes zero: its couplings are those of every silent
    child. So it returns the couplings of all children that `ClassCaps` had.

    Children are counted as in `ClassCaps`; with `share="type"` types are
    counted, and with `share="all"` types of spatial children, which are silent
    where their poses are zero.

    Args:
        *args: Arguments of `ClassCaps`.
        grid: Ints. How the children of `ClassCaps` were arranged, `(i,)` or
            `(h, w, t)`.
        sources: Ints. The children of the input that vote.
        origins: Ints. The indices that these had in `ClassCaps`.
        **kwargs: Other arguments of `ClassCaps`.

    Call arguments:
        inputs: Child poses.
        activations: Child activations. Defaults to the lengths of the poses.
        labels: Not used, as in `ClassCaps` with such a routing.
        return_activations: As in `ClassCaps`.
        return_couplings: As in `ClassCaps`.

    Input shape:
        `[b, i', k]`, or `[b, h, w, t', k]` with what is left of the types.

    Output shape:
        As in `ClassCaps`, with couplings `[b, i, num_capsules]` of the children
        before.

    Raises:
        ValueError: If an argument is out of range, the routing does not ignore
            silent children, or the input's shape does not fit.

    Example:

    >>> import numpy as np
    >>> children = np.zeros((2, 4, 8), "float32")
    >>> layer = CompactCaps(3, 16, grid=(9,), sources=[0, 2], origins=[1, 7])
    >>> poses, couplings = layer(children, return_couplings=True)
    >>> tuple(poses.shape), tuple(couplings.shape)
    ((2, 3, 16), (2, 9, 3))
    """

    def __init__(
        self,
        *args: Any,
        grid: Sequence[int],
        sources: Sequence[int],
        origins: Sequence[int],
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        if not (self.can_be_silent or self.routing.ignores_inactive):
            raise ValueError(
                "CompactCaps takes a routing for which children that vote zero "
                "do not count, and no `coordinates`. Received: "
                f"routing={self.routing!r}, coordinates={self.coordinates}."
            )
        self.grid = tuple(grid)
        self.sources = tuple(sources)
        self.origins = tuple(origins)
        total = self._counted_before
        distinct = len(set(self.origins)) == len(self.origins)
        if (
            len(self.grid) not in ((3,) if self.share == "type" else (1, 3))
            or not self.origins
            or len(self.sources) != len(self.origins)
            or not distinct
            or not all(0 <= origin < total for origin in self.origins)
        ):
            raise ValueError(
                "`origins` must be different children of `grid`, one for each "
                f"of `sources`. Received: grid={self.grid}, "
                f"sources={self.sources}, origins={self.origins}."
            )

    def build(self, input_shape: Any) -> None:
        self._check_input_shape(input_shape)
        positions, children = self._counted(input_shape)
        if not 0 <= min(self.sources) <= max(self.sources) < children:
            raise ValueError(
                f"`sources` must be from 0 to {children - 1} for the input "
                f"shape {tuple(input_shape)}. Received: sources={self.sources}."
            )
        place = self._place(positions)
        super().build((None, *place, len(self.sources), input_shape[-1]))

    def call(
        self,
        inputs: Tensor,
        activations: Tensor | None = None,
        labels: Tensor | None = None,
        return_activations: bool = False,
        return_couplings: bool = False,
        training: bool | None = None,
    ) -> Any:
        del labels, training
        activations = child_activations(inputs, activations)
        poses = self._voting(inputs, inputs.shape)
        activations = self._voting(activations, inputs.shape)
        weights = None
        if return_couplings:
            poses = _with_zero(poses, axis=3)
            activations = _with_zero(activations, axis=3)
            positions = math.prod(poses.shape[1:3])
            weights = self._weights_with_silent(positions)
        flat = (-1, math.prod(poses.shape[1:-1]))
        routed = self._route(
            poses,
            ops.reshape(activations, flat),
            weights,
            return_couplings=return_couplings,
        )
        if return_couplings:
            routed = routed._replace(couplings=self._of_all(routed.couplings))
        return self._outputs(routed, return_activations, return_couplings)

    def voting_activations(
        self, inputs: Tensor, activations: Tensor | None = None
    ) -> Tensor:
        activations = child_activations(inputs, activations)
        voting = _with_zero(self._voting(activations, inputs.shape), axis=3)
        flat = ops.reshape(voting, (-1, math.prod(voting.shape[1:]), 1))
        return ops.squeeze(self._of_all(flat), axis=-1)

    def children_shape(self, input_shape: Any) -> tuple[int, ...]:
        del input_shape
        return self.grid

    @property
    def counts_types(self) -> bool:
        """True if `sources` and `origins` are types, the same everywhere."""
        return self.share is not None and len(self.grid) == 3

    @property
    def _counted_before(self) -> int:
        """The number of children that `ClassCaps` counts at each position."""
        return self.grid[-1] if self.counts_types else math.prod(self.grid)

    def _place(self, positions: int) -> tuple[int, int]:
        """Returns rows and columns of the positions, which votes may know."""
        rows, columns = self.grid[:2] if self.counts_types else (1, positions)
        return int(rows), int(columns)

    def _counted(self, input_shape: Any) -> tuple[int, int]:
        """Returns the numbers of positions and of children counted at each."""
        *grid, _ = input_shape[1:]
        if self.counts_types:
            return math.prod(grid[:-1]), grid[-1]
        return 1, math.prod(grid)

    def _voting(self, values: Tensor, input_shape: Any) -> Tensor:
        """Returns `[b, rows, columns, t, ...]` of the children that vote.

        Args:
            values: Poses of the input's shape, or activations.
            input_shape: Shape of the poses.
        """
        positions, children = self._counted(input_shape)
        components = values.shape[len(input_shape) - 1 :]
        shape = (-1, *self._place(positions), children, *components)
        values = ops.reshape(values, shape)
        if self.sources == tuple(range(children)):
            return values
        return ops.take(values, np.array(self.sources, "int32"), axis=3)

    def _weights_with_silent(
        self, positions: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the weights with those of a child that votes zero."""
        transformation, weights = self._weights()
        voting = len(self.sources)
        per_child = self.routing.weights(
            positions * voting, self.num_capsules, self.dim
        )
        for name, weight in weights.items():
            if per_child[name].per_child:
                shape = (positions, voting, *weight.shape[1:])
                weight = _with_zero(ops.reshape(weight, shape), axis=1)
                weights[name] = ops.reshape(weight, (-1, *weight.shape[2:]))
        if self.share != "all":
            transformation = _with_zero(transformation, axis=0)
        return transformation, weights

    def _of_all(self, values: Tensor) -> Tensor:
        """Returns `[b, i, x]` of all children from those of the voting ones.

        The last child at each position stands for all silent ones.
        """
        children = self._counted_before
        voting = len(self.sources)
        where = np.full(children, voting, "int32")
        where[list(self.origins)] = np.arange(voting)
        columns = values.shape[-1]
        positions = values.shape[1] // (voting + 1)
        values = ops.reshape(values, (-1, positions, voting + 1, columns))
        values = ops.take(values, where, axis=2)
        values = ops.reshape(values, (-1, positions * children, columns))
        return ops.cast(values, "float32")

    def get_config(self) -> dict[str, Any]:
        config = {
            "grid": self.grid,
            "sources": self.sources,
            "origins": self.origins,
        }
        return {**super().get_config(), **config}


def _with_zero(tensor: Tensor, axis: int) -> Tensor:
    """Returns a tensor with a zero more at the end of an axis."""
    widths = [[0, int(axis == other)] for other in range(len(tensor.shape))]
    return ops.pad(tensor, widths)

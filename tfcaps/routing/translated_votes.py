"""Votes of children that stand on a grid, each its place less a shift."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps.ops import Tensor
from tfcaps.routing.votes import Mass, Votes, near_votes


class TranslatedVotes(Votes):
    """Votes `p_i - o_tj` of children at places `p_i` on a grid.

    How many votes fall near a place, `mass`, is counted with each child at the
    centre of its cell. The kernel is then a product of one for rows and one for
    columns, and no votes `[b, i, j]` are made.

    Args:
        places: Rows and columns `[b, h, w, t, 2]` of the children.
        shifts: Where a type stands relative to a parent, `[t, j, 2]`.
        centres: Rows `[h]` and columns `[w]` of the cells' centres.
        anchors: Rows `[y]` and columns `[x]` of the places at which `mass`
            counts.
        kept: Types `[k, j]` that each parent counts, ints. Defaults to `None`,
            all.
        instances: Int. How often types are repeated, as a child may be any of
            so many. Defaults to `1`.
    """

    def __init__(
        self,
        places: Tensor,
        shifts: Tensor,
        centres: Sequence[NDArray[np.float32]],
        anchors: Sequence[NDArray[np.float32]],
        kept: Tensor | None = None,
        instances: int = 1,
    ):
        self._instances = instances
        self._places = ops.cast(places, shifts.dtype)
        self._shifts = shifts
        self._centres = centres
        self._anchors = anchors
        self._kept = kept
        self._grid = (*(len(c) for c in centres), int(shifts.shape[0]))

    @property
    def dtype(self) -> Any:
        return self._shifts.dtype

    @property
    def num_parents(self) -> int:
        return int(self._shifts.shape[1])

    @property
    def num_children(self) -> int:
        return math.prod(self._grid)

    @property
    def _by_parent(self) -> Tensor:
        return self.tensor

    @property
    def tensor(self) -> Tensor:
        return ops.stack(self.components(), axis=-1)

    def components(self) -> list[Tensor]:
        if self._kept is not None:
            return self._kept_components()
        rows, columns, types = self._grid
        votes = []
        for axis in (0, 1):
            places = ops.reshape(
                self._places[..., axis], (-1, 1, rows * columns, types)
            )
            shifts = ops.transpose(self._shifts[..., axis])  # [j, t]
            shifts = ops.reshape(shifts, (1, self.num_parents, 1, types))
            shape = (-1, self.num_parents, self.num_children)
            votes.append(ops.reshape(places - shifts, shape))
        return votes

    def of_kept(self, values: Tensor) -> Tensor:
        if self._kept is None:
            return values
        return ops.take_along_axis(values, self._kept, axis=0)

    def mass(self, activations: Tensor, width: Tensor) -> Mass:
        rows, columns, types = self._grid
        if rows * columns == 1:
            # Of each type one child, which may stand anywhere.
            near = _near(self.tensor, width)  # [b, j, t, x]
            near = near * ops.expand_dims(self.amounts(activations), -1)
            near = ops.transpose(near, (2, 1, 0, 3))
            return near_votes(near, self.tensor)
        on_rows, on_columns = (self._kernel(axis, width) for axis in (0, 1))
        types, parents, _, across = on_columns.shape
        down = on_rows.shape[-1]
        # First over columns, then over rows, such that no large tensor is
        # turned: [t, jx, w] by [t, w, bh] is [t, jxb, h], and so on.
        maps = ops.reshape(activations, (-1, rows, columns, self._grid[2]))
        maps = ops.transpose(maps, (3, 2, 0, 1))
        if self._kept is not None:
            maps = ops.take(maps, ops.reshape(self._kept, (-1,)), axis=0)
        groups = types if self._kept is None else types * parents
        maps = ops.reshape(maps, (groups, columns, -1))
        on_columns = ops.swapaxes(on_columns, 2, 3)
        on_columns = ops.reshape(on_columns, (groups, -1, columns))
        mass = ops.matmul(on_columns, maps)
        mass = ops.reshape(mass, (types * parents, -1, rows))
        on_rows = ops.reshape(on_rows, (types * parents, rows, down))
        mass = ops.reshape(ops.matmul(mass, on_rows), (types, parents, -1))
        grid = np.stack(np.meshgrid(*self._anchors, indexing="ij"), axis=-1)
        grid = grid.reshape(-1, 2).astype("float32")

        def by_image(sums: Tensor) -> Tensor:
            sums = ops.reshape(sums, (parents, across, -1, down))
            sums = ops.transpose(sums, (2, 0, 3, 1))
            return ops.reshape(sums, (-1, parents, down * across))

        def place(index: Tensor) -> Tensor:
            return ops.take(ops.convert_to_tensor(grid), index, axis=0)

        return Mass(mass, by_image, place)

    def of_all_parents(self, claims: Tensor) -> Tensor:
        places, types = math.prod(self._grid[:2]), self._of_one_instance
        if self._kept is None:
            shape = (-1, self.num_parents, places, self._instances, types)
            total = ops.sum(ops.reshape(claims, shape), axis=(1, 3))
        else:
            total = ops.einsum("bjnk,kjt->bnt", *self._by_kept_type(claims))
        return self.amounts(ops.tile(total, (1, 1, self._instances)))

    def _kept_components(self) -> list[Tensor]:
        """Returns those `[b, j, i]` of the children that each parent counts."""
        rows, columns, types = self._grid
        votes = []
        for axis in (0, 1):
            places = self._places[..., axis]
            places = ops.reshape(places, (-1, rows * columns, types))
            shifts = self.of_kept(self._shifts[..., axis])  # [k, j]
            shifts = ops.tile(ops.transpose(shifts), (1, rows * columns))
            votes.append(self.amounts(places) - shifts)
        return votes

    def amounts(self, by_type: Tensor) -> Tensor:
        if self._kept is None:
            return super().amounts(by_type)
        count = int(by_type.shape[1])
        most, parents = self._kept.shape
        kept = ops.take(by_type, ops.reshape(self._kept, (-1,)), axis=-1)
        kept = ops.reshape(kept, (-1, count, most, parents))
        kept = ops.transpose(kept, (0, 3, 1, 2))
        return ops.reshape(kept, (-1, parents, count * most))

    def of_children(self, couplings: Tensor) -> Tensor:
        _, parents, _ = couplings.shape
        places, types = math.prod(self._grid[:2]), self._of_one_instance
        if self._kept is None:
            shape = (-1, parents, places, self._instances, types)
            spread = ops.sum(ops.reshape(couplings, shape), axis=3)
            spread = ops.transpose(spread, (0, 2, 3, 1))
        else:
            spread = ops.einsum(
                "bjnk,kjt->bntj", *self._by_kept_type(couplings)
            )
        spread = ops.reshape(spread, (-1, places * types, parents))
        return ops.minimum(spread, 1.0) if self._instances > 1 else spread

    @property
    def _of_one_instance(self) -> int:
        return self._grid[2] // self._instances

    def _by_kept_type(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Returns `[b, j, i]` as `[b, j, n, k]`, and of which type `k` is."""
        kept: Any = self._kept
        most, parents = kept.shape
        types = self._of_one_instance
        values = ops.reshape(
            values, (-1, parents, values.shape[2] // most, most)
        )
        which = ops.one_hot(kept % types, types, dtype=values.dtype)
        return values, which

    def _kernel(self, axis: int, width: Tensor) -> Tensor:
        """Returns the nearness of cells to the places that anchors want.

        Returns:
            Tensor `[t, j, cells, anchors]`, in [0, 1].
        """
        apart = self._centres[axis][:, None] - self._anchors[axis][None]
        shifts = self.of_kept(self._shifts[..., axis])
        wanted = ops.expand_dims(ops.expand_dims(shifts, 2), 3)
        return ops.exp(-0.5 * ops.square((apart - wanted) / width))


def _near(votes: Tensor, width: Tensor) -> Tensor:
    """Returns how near the votes `[b, j, i, d]` are, `[b, j, i, x]`."""
    apart = ops.expand_dims(votes, 3) - ops.expand_dims(votes, 2)
    return ops.exp(-0.5 * ops.sum(ops.square(apart), axis=-1) / width**2)

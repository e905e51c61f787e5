"""Votes kept as poses and maps, and contracted without being computed."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from tfcaps.ops import Tensor, as_float32, square_root
from tfcaps.routing import contractions
from tfcaps.routing.loop import is_unrolled
from tfcaps.routing.votes import Votes


class Block(NamedTuple):
    """Children that vote by maps of their types, shared by all positions.

    Children that share no maps are types at one position.
    """

    poses: Tensor  # of children, `[b, p, t, k]`
    maps: Tensor  # from poses to votes, `[t, j, k, d]`


class FactoredVotes(Votes):
    """The votes `û_bij = u_bi W_ij` of blocks of children, as their factors.

    Routing only contracts votes. So the sum over children, or over components,
    can be taken before a vote is complete:

        sum_i c_bij û_bijd = sum_tk (sum_p c_bptj u_bptk) W_tjkd
        û_bij · v_bj       = sum_k u_bptk (sum_d W_tjkd v_bjd)

    At most `b * j * t * k` numbers of a block are in memory at a time. Squared
    distances are `|û|^2 - 2 û · v + |v|^2`, whose error is about 1e-7 of the
    squared lengths. The children are those of the blocks in order, in each the
    positions, at each position the types.
    """

    def __init__(self, blocks: list[Block], factors: Tensor | None = None):
        self._blocks = [Block(*map(as_float32, block)) for block in blocks]
        self._factors = factors

    @property
    def dtype(self) -> Any:
        return self._blocks[0].poses.dtype

    @property
    def num_parents(self) -> int:
        return int(self._blocks[0].maps.shape[1])

    @property
    def _by_parent(self) -> Tensor:
        """The votes themselves, `[b, j, i, d]`."""
        votes = Votes(materialize_votes(self._blocks), parents_first=True)
        if self._factors is not None:
            votes = votes.scale(self._factors)
        return votes.tensor

    def of(self, tensor: Tensor) -> Votes:
        return Votes(tensor, parents_first=True)

    def sum(self) -> Tensor:
        if self._factors is not None:
            return self.weighted_sum(ops.ones_like(self._factors))
        return sum(_sum(*block) for block in self._blocks)

    def weighted_sum(self, couplings: Tensor) -> Tensor:
        parts = zip(
            self._split(self._scaled(couplings)), self._blocks, strict=True
        )
        return sum(contractions.weighted_sum(c, *block) for c, block in parts)

    def agreement(self, poses: Tensor) -> Tensor:
        products = [contractions.agreement(poses, *x) for x in self._blocks]
        return self._scaled(_joined(products))

    def lengths(self) -> Tensor:
        squares = _joined([_squared_lengths(*block) for block in self._blocks])
        return ops.abs(self._scaled(square_root(ops.maximum(squares, 0.0))))

    def distances(self, poses: Tensor, lengths: Tensor) -> Tensor:
        squares = ops.expand_dims(ops.sum(ops.square(poses), axis=-1), 1)
        squares = squares + ops.square(lengths) - 2.0 * self.agreement(poses)
        return square_root(ops.maximum(squares, 0.0))

    def scale(self, factors: Tensor) -> "FactoredVotes":
        return FactoredVotes(self._blocks, self._scaled(factors))

    def stop_gradient(self) -> "FactoredVotes":
        blocks, factors = self._blocks, self._factors
        return FactoredVotes(
            [Block(*map(ops.stop_gradient, block)) for block in blocks],
            None if factors is None else ops.stop_gradient(factors),
        )

    def zero_poses(self) -> Tensor:
        poses, maps = self._blocks[0]
        batch = ops.shape(poses)[0]
        return ops.zeros((batch, *maps.shape[1::2]), self.dtype)

    def zero_couplings(self) -> Tensor:
        batch = ops.shape(self._blocks[0].poses)[0]
        children = sum(map(_children, self._blocks))
        shape = (batch, children, self.num_parents)
        return ops.zeros(shape, self.dtype)

    def _scaled(self, tensor: Tensor) -> Tensor:
        """Returns `[b, i, j]` times the factors, if there are any."""
        return tensor if self._factors is None else tensor * self._factors

    def _split(self, couplings: Tensor) -> list[Tensor]:
        if not self._blocks[1:]:
            return [couplings]
        counts = list(map(_children, self._blocks))
        return list(ops.split(couplings, np.cumsum(counts)[:-1], axis=1))


def materialize_votes(blocks: list[Block]) -> Tensor:
    """Returns the votes of blocks, `[b, j, i, d]`, in the type of the poses."""
    if blocks[1:] and all(block.poses.shape[1] == 1 for block in blocks):
        # Children that share no maps: one product for all.
        poses = ops.concatenate([block.poses for block in blocks], axis=2)
        maps = ops.concatenate([block.maps for block in blocks], axis=0)
        blocks = [Block(poses, maps)]
    votes = [_materialized(*block) for block in blocks]
    return ops.concatenate(votes, axis=2) if votes[1:] else votes[0]


def _materialized(poses: Tensor, maps: Tensor) -> Tensor:
    """Returns the votes of a block, `[b, j, i, d]`.

    One product for each type, so written that its gradients, for poses and for
    maps, are products of the same gradient of votes, turned only once. Other
    runtimes would round the factors of a product to int8, but not of an einsum.
    """
    _, positions, types, components = poses.shape
    _, parents, _, dim = maps.shape
    shape = (-1, parents, positions * types, dim)
    if is_unrolled():
        return ops.reshape(ops.einsum("bptk,tjkd->bjptd", poses, maps), shape)
    rows = ops.reshape(
        ops.transpose(poses, (2, 0, 1, 3)), (types, -1, components)
    )
    columns = ops.reshape(
        ops.transpose(maps, (0, 2, 1, 3)), (types, components, parents * dim)
    )
    votes = ops.reshape(
        ops.matmul(rows, columns), (types, -1, positions, parents, dim)
    )
    votes = ops.transpose(votes, (1, 3, 2, 0, 4))
    return ops.reshape(votes, shape)


def _children(block: Block) -> int:
    _, positions, types, _ = block.poses.shape
    return int(positions * types)


def _joined(parts: list[Tensor]) -> Tensor:
    """Returns `[b, i, j]` of all children."""
    return ops.concatenate(parts, axis=1) if parts[1:] else parts[0]


def _sum(poses: Tensor, maps: Tensor) -> Tensor:
    """Returns the sum `[b, j, d]` of all votes, by one product."""
    types, parents, components, dim = maps.shape
    rows = ops.reshape(ops.sum(poses, axis=1), (-1, types * components))
    columns = ops.transpose(maps, (0, 2, 1, 3))
    columns = ops.reshape(columns, (types * components, parents * dim))
    return ops.reshape(ops.matmul(rows, columns), (-1, parents, dim))


def _squared_lengths(poses: Tensor, maps: Tensor) -> Tensor:
    """Returns the squared length `[b, i, j]` of each vote, `u W Wᵀ uᵀ`.

    With no more components than parents it is one product of `uᵀ u` and `W Wᵀ`,
    each taken as a vector, which is smaller than `u W Wᵀ` of all parents.
    """
    _, positions, types, components = poses.shape
    parents = maps.shape[1]
    if components > parents:
        grams = ops.einsum("tjkd,tjld->tjkl", maps, maps)
        pulled = ops.einsum("bptk,tjkl->jbptl", poses, grams)
        squares = ops.transpose(ops.sum(pulled * poses, axis=-1), (1, 2, 3, 0))
        return ops.reshape(squares, (-1, positions * types, parents))
    grams = ops.einsum("tjkd,tjld->tklj", maps, maps)
    grams = ops.reshape(grams, (types, components**2, parents))
    poses = ops.reshape(
        ops.transpose(poses, (2, 0, 1, 3)), (types, -1, components)
    )
    pairs = ops.expand_dims(poses, -1) * ops.expand_dims(poses, -2)
    pairs = ops.reshape(pairs, (types, -1, components**2))
    squares = ops.transpose(ops.matmul(pairs, grams), (1, 0, 2))
    return ops.reshape(squares, (-1, positions * types, parents))

"""Votes, seen only through the two contractions that routing needs."""

import copy

from keras import ops

from tfcaps.ops import Tensor, as_float32


class Votes:
    """The votes of children for parents, held as one float32 tensor.

    Routings use votes only through `weighted_sum` and `agreement`, so that a
    form of votes that is never held in memory can take this one's place.

    Args:
        tensor: Votes `[b, i, j, d]`.

    Raises:
        ValueError: If the tensor has not four axes.
    """

    def __init__(self, tensor: Tensor):
        tensor = as_float32(tensor)
        if len(tensor.shape) != 4:
            raise ValueError(
                "Votes must have the shape [batch, children, parents, "
                f"components]. Received: shape={tuple(tensor.shape)}."
            )
        # [b, j, i, d], turned once: both contractions are then plain products
        # of matrices, where those of [b, i, j, d] turn the votes every time.
        self._by_parent = ops.transpose(tensor, (0, 2, 1, 3))

    def weighted_sum(self, couplings: Tensor) -> Tensor:
        """Contracts couplings `[b, i, j]` over children to `[b, j, d]`."""
        rows = ops.expand_dims(ops.transpose(couplings, (0, 2, 1)), 2)
        return ops.squeeze(ops.matmul(rows, self._by_parent), axis=2)

    def agreement(self, poses: Tensor) -> Tensor:
        """Returns the dot products `[b, i, j]` with the poses `[b, j, d]`."""
        columns = ops.expand_dims(poses, -1)
        products = ops.matmul(self._by_parent, columns)
        return ops.transpose(ops.squeeze(products, axis=-1), (0, 2, 1))

    def zero_poses(self) -> Tensor:
        """Returns parent poses `[b, j, d]` of zeros."""
        return ops.zeros_like(self._by_parent[:, :, 0])

    def stop_gradient(self) -> "Votes":
        """Returns the same votes as constants of the backward pass."""
        stopped = copy.copy(self)
        stopped._by_parent = ops.stop_gradient(self._by_parent)
        return stopped

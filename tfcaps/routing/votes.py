"""Votes, seen only through the two contractions that routing needs."""

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
        self.tensor = tensor

    @property
    def num_parents(self) -> int:
        return int(self.tensor.shape[2])

    def weighted_sum(self, couplings: Tensor) -> Tensor:
        """Contracts couplings `[b, i, j]` over children to `[b, j, d]`."""
        return ops.einsum("bij,bijd->bjd", couplings, self.tensor)

    def agreement(self, poses: Tensor) -> Tensor:
        """Returns the dot products `[b, i, j]` with the poses `[b, j, d]`."""
        return ops.einsum("bijd,bjd->bij", self.tensor, poses)

    def zero_poses(self) -> Tensor:
        """Returns parent poses `[b, j, d]` of zeros."""
        return ops.zeros_like(self.tensor[:, 0])

    def stop_gradient(self) -> "Votes":
        """Returns the same votes as constants of the backward pass."""
        return Votes(ops.stop_gradient(self.tensor))

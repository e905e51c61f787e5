"""Votes, accessible only through the contractions that routing needs."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from keras import ops

from tfcaps.ops import Tensor, as_float32, length, softmax


class Votes:
    """The votes `[b, i, j, d]` of children for parents, as a float32 tensor.

    Routings never index votes; they only call the methods below. So other forms
    can replace this one: `FactoredVotes`, which are never held in memory, and
    votes whose parents compete in another way, such as in the windows of
    `ConvCaps`. With `parents_first` the tensor is `[b, j, i, d]`, as it is
    kept.

    Raises:
        ValueError: If the tensor has not four axes.
    """

    _known: Iterator[Tensor] = iter(())
    _results: list[Tensor] | None = None

    def __init__(self, tensor: Tensor, parents_first: bool = False):
        tensor = as_float32(tensor)
        if len(tensor.shape) != 4:
            raise ValueError(
                "Votes must have the shape [batch, children, parents, "
                f"components]. Received: shape={tuple(tensor.shape)}."
            )
        # [b, j, i, d], turned once: the contractions are then plain products
        # of matrices, where those of [b, i, j, d] turn the votes every time.
        if not parents_first:
            tensor = ops.transpose(tensor, (0, 2, 1, 3))
        self._by_parent = tensor

    @property
    def dtype(self) -> Any:
        """The type of the votes: float32, or float64 if they came so."""
        return self._by_parent.dtype

    @property
    def num_parents(self) -> int:
        """The number of parents."""
        return int(self._by_parent.shape[1])

    @property
    def tensor(self) -> Tensor:
        """The votes as they are kept, `[b, j, i, d]`."""
        return self._by_parent

    def of(self, tensor: Tensor) -> "Votes":
        """Returns other votes of the same form, made of such a tensor."""
        votes = copy.copy(self)
        votes._by_parent = tensor
        return votes

    def recorded(
        self, known: Sequence[Tensor] = ()
    ) -> tuple["Votes", list[Tensor]]:
        """Returns the same votes, and the list that contractions will fill.

        A backward pass gives what they filled it with as `known`: contractions
        in the same order then have gradients, but are not computed again.
        """
        votes = copy.copy(self)
        results: list[Tensor] = []
        votes._known, votes._results = iter(known), results
        return votes, results

    def _contract(self, contraction: Callable[..., Any], *of: Tensor) -> Tensor:
        """Returns a contraction, with the gradient that it has of its own."""
        known = next(self._known, None)

        @ops.custom_gradient
        def contracted(*of: Tensor) -> tuple[Tensor, Any]:
            result, backward = contraction(*of)

            def gradient(*arguments: Tensor, upstream: Any = None) -> Any:
                (slopes,) = arguments if upstream is None else (upstream,)
                return backward(slopes)

            return result if known is None else known, gradient

        result = contracted(*of)
        if self._results is not None:
            self._results.append(result)
        return result

    def sum(self) -> Tensor:
        """Returns the sum `[b, j, d]` over all children."""
        return ops.sum(self._by_parent, axis=2)

    def weighted_sum(self, couplings: Tensor) -> Tensor:
        """Contracts couplings `[b, i, j]` over children to `[b, j, d]`."""
        couplings = _by_parent(couplings)
        return self._contract(_weighted_sum, couplings, self._by_parent)

    def agreement(self, poses: Tensor) -> Tensor:
        """Returns the dot products `[b, i, j]` with the poses `[b, j, d]`."""
        return _by_parent(self._contract(_agreement, self._by_parent, poses))

    def lengths(self) -> Tensor:
        """Returns the length `[b, i, j]` of each vote."""
        return _by_parent(length(self._by_parent))

    def distances(self, poses: Tensor, lengths: Tensor) -> Tensor:
        """Returns the distance `[b, i, j]` of votes from poses `[b, j, d]`.

        A form that does not hold the votes needs their `lengths`.
        """
        del lengths
        return _by_parent(length(_deviations(self._by_parent, poses)))

    def weighted_squares(self, couplings: Tensor, poses: Tensor) -> Tensor:
        """Contracts `(û_ijd - v_jd)^2` with couplings `[b, i, j]` over i."""
        tensors = _by_parent(couplings), self._by_parent, poses
        return self._contract(_weighted_squares, *tensors)

    def squared_distances(self, poses: Tensor, scales: Tensor) -> Tensor:
        """Contracts `(û_ijd - v_jd)^2` with scales `[b, j, d]` over d."""
        tensors = self._by_parent, poses, scales
        return _by_parent(self._contract(_squared_distances, *tensors))

    def scale(self, factors: Tensor) -> "Votes":
        """Returns the votes multiplied by factors `[b, i, j]`."""
        factors = ops.expand_dims(_by_parent(factors), -1)
        return self.of(self._by_parent * factors)

    def compete(self, logits: Tensor) -> Tensor:
        """Turns logits `[b, i, j]` into shares of a child, over its parents."""
        return softmax(logits)

    def stop_gradient(self) -> "Votes":
        """Returns the same votes as constants of the backward pass."""
        return self.of(ops.stop_gradient(self._by_parent))

    def zero_poses(self) -> Tensor:
        """Returns parent poses `[b, j, d]` of zeros."""
        return ops.zeros_like(self._by_parent[:, :, 0])

    def zero_couplings(self) -> Tensor:
        """Returns couplings `[b, i, j]` of zeros."""
        return _by_parent(ops.zeros_like(self._by_parent[..., 0]))


def _by_parent(tensor: Tensor) -> Tensor:
    """Turns `[b, i, j]` into `[b, j, i]`, or back."""
    return ops.transpose(tensor, (0, 2, 1))


# The gradient of votes is a column times a row, which TensorFlow would multiply
# as matrices. On CPUs its release 2.21 (oneDNN 3.7) then writes beyond a buffer
# at times, when several operations run at once.


def _weighted_sum(weights: Tensor, votes: Tensor) -> tuple[Tensor, Any]:
    def gradient(sums: Tensor) -> Any:
        return _products(votes, sums), _outer(weights, sums)

    return _sums(weights, votes), gradient


def _agreement(votes: Tensor, poses: Tensor) -> tuple[Tensor, Any]:
    def gradient(products: Tensor) -> Any:
        return _outer(products, poses), _sums(products, votes)

    return _products(votes, poses), gradient


# Both below contract squares, which are computed again for the gradient: that
# takes less time than to keep them, and the gradient of each as large as they.
# Deviations are summed, not votes: of close votes their sum would be mostly the
# rounding of the votes, which EM divides by the variance.


def _weighted_squares(
    weights: Tensor, votes: Tensor, poses: Tensor
) -> tuple[Tensor, Any]:
    def gradient(sums: Tensor) -> Any:
        deviations = _deviations(votes, poses)
        to_poses = -2.0 * sums * _sums(weights, deviations)
        to_votes = 2.0 * deviations * _outer(weights, sums)
        return _scaled_squares(deviations, sums), to_votes, to_poses

    return _sums(weights, ops.square(_deviations(votes, poses))), gradient


def _squared_distances(
    votes: Tensor, poses: Tensor, scales: Tensor
) -> tuple[Tensor, Any]:
    def gradient(products: Tensor) -> Any:
        deviations = _deviations(votes, poses)
        to_poses = -2.0 * scales * _sums(products, deviations)
        to_votes = 2.0 * deviations * _outer(products, scales)
        return to_votes, to_poses, _sums(products, ops.square(deviations))

    return _scaled_squares(_deviations(votes, poses), scales), gradient


def _deviations(votes: Tensor, poses: Tensor) -> Tensor:
    """Returns votes `[b, j, i, d]` minus poses `[b, j, d]`."""
    return votes - ops.expand_dims(poses, 2)


def _sums(weights: Tensor, votes: Tensor) -> Tensor:
    """Contracts weights `[b, j, i]` over children to `[b, j, d]`."""
    return ops.squeeze(ops.matmul(ops.expand_dims(weights, 2), votes), axis=2)


def _products(votes: Tensor, poses: Tensor) -> Tensor:
    """Returns the dot products `[b, j, i]` with the poses `[b, j, d]`."""
    return ops.squeeze(ops.matmul(votes, ops.expand_dims(poses, -1)), axis=-1)


def _scaled_squares(deviations: Tensor, scales: Tensor) -> Tensor:
    """Sums squares `[b, j, i, d]` times scales `[b, j, d]` to `[b, j, i]`.

    A product of matrices would have the squares written to memory before it.
    """
    squares = ops.square(deviations) * ops.expand_dims(scales, 2)
    return ops.sum(squares, axis=-1)


def _outer(weights: Tensor, poses: Tensor) -> Tensor:
    """Returns votes that are weights `[b, j, i]` times poses `[b, j, d]`."""
    return ops.expand_dims(weights, -1) * ops.expand_dims(poses, 2)

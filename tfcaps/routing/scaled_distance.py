"""Scaled-distance-agreement routing of γ-CapsNet."""

import math
from dataclasses import dataclass

import keras
from keras import ops

from tfcaps.ops import Tensor, length, softmax, squash
from tfcaps.routing.loop import repeat
from tfcaps.routing.routing import Routed, Routing, one_of
from tfcaps.routing.votes import Votes

# Axes of [b, i, j] over which the mean distance is taken.
_SCALE_AXES = {"capsule": (2,), "sample": (1, 2), "batch": (0, 1, 2)}

# Share of a parent at half the mean distance, all others being at the mean.
_NEAR_SHARE = 0.9
_NEAR_DISTANCE = 0.5


@keras.saving.register_keras_serializable(package="tfcaps")
@dataclass(eq=False)
class ScaledDistanceRouting(Routing):
    """Routes each child to the parents that are near its vote.

    A vote is first shortened to the length of the child that casts it. With
    votes `û`, logits `b` (zero at first) and bias `β`, each iteration is

        c_ij = softmax_j(b_ij)
        v_j  = squash(sum_i c_ij û_ij + β_j)
        d_ij = |v_j - û_ij|
        b_ij = τ d_ij                       (not after the last iteration)

    The logits are replaced, not added up. `τ` is negative, and such that a
    parent at half the mean distance gets a share of 0.9 against all others at
    the mean distance. The public implementations take the mean over the whole
    batch, so that a sample's couplings depend on its neighbours. What is not
    listed is as in `Routing`.

    Args:
        distance_scale: Over what the mean distance is taken: the parents of one
            child (`"capsule"`), also the children (`"sample"`), also the batch
            (`"batch"`, the published code). In `ConvCaps` a sample is one
            window. Defaults to `"capsule"`.
        gradient: As in `Routing`. By `"last"` networks hardly learn: a longer
            parent is farther from its children, which it then loses. Defaults
            to `"full"`, as the authors do.

    Call arguments:
        activations: Lengths `[b, i]` of the children; without them votes are
            not shortened.

    References:
        - Peer, Stabinger, Rodríguez-Sánchez, 2018,
          https://arxiv.org/abs/1812.09707
    """

    vote_free = True
    replays = True
    own_kinds = {"distance_scale": one_of(*_SCALE_AXES)}
    iterations: int = 3
    distance_scale: str = "capsule"
    gradient: str = "full"

    @property
    def ignores_silent(self) -> bool:  # type: ignore[override]
        # Otherwise silent children count in the mean distance of all.
        return self.distance_scale == "capsule"

    @property
    def vote_passes(self) -> int:
        return 2 * self.iterations  # also the lengths of the votes

    def route(
        self, votes: Votes, activations: Tensor | None, bias: Tensor | None
    ) -> Routed:
        bias = 0.0 if bias is None else bias
        lengths = votes.lengths()
        if activations is not None:
            factors = _shortening(lengths, activations)
            votes, lengths = votes.scale(factors), lengths * factors

        def logits_towards(sums: Tensor) -> Tensor:
            distances = votes.distances(squash(sums + bias), lengths)
            return self._logits(distances, votes.num_parents)

        def replace_sums(_: Tensor, sums: Tensor) -> Tensor:
            return votes.weighted_sum(softmax(logits_towards(sums)))

        logits = votes.zero_couplings()
        if self.iterations > 1:
            # Equal couplings need no weights.
            sums = votes.sum() / votes.num_parents
            is_full = self.gradient == "full"
            sums = repeat(replace_sums, sums, self.iterations - 2, is_full)
            logits = logits_towards(self.constant(sums))
        couplings = self.rounded(softmax(logits))
        weights = self.constant(couplings)
        poses = squash(votes.weighted_sum(weights) + bias)
        return Routed(poses, length(poses), couplings)

    def _logits(self, distances: Tensor, parents: int) -> Tensor:
        axes = _SCALE_AXES[self.distance_scale]
        mean = ops.mean(distances, axis=axes, keepdims=True)
        # A lone parent has no rivals, and its share is one at any logit.
        odds = _NEAR_SHARE * max(parents - 1, 1) / (1.0 - _NEAR_SHARE)
        scale = math.log(odds) / ((_NEAR_DISTANCE - 1.0) * mean - 1e-12)
        return scale * distances


def _shortening(lengths: Tensor, activations: Tensor) -> Tensor:
    """Returns factors `[b, i, j]` of votes longer than children `[b, i]`."""
    limits = ops.expand_dims(activations, -1)
    # Dividing by very short votes too would give 0 * inf in the gradient.
    longer = lengths > limits
    divisors = ops.where(longer, lengths, ops.ones_like(lengths))
    kept = ops.cast(limits > 0, lengths.dtype)
    return ops.where(longer, limits / divisors, kept)

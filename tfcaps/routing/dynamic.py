"""Dynamic routing between capsules: routing by agreement."""

import math
from dataclasses import dataclass

import keras
from keras import ops

from tfcaps.ops import Tensor, length, softmax, squash
from tfcaps.routing.loop import repeat
from tfcaps.routing.routing import FINITE, Routed, Routing, Weight, one_of
from tfcaps.routing.votes import Votes

# Beyond it logits may overflow.
_LARGEST_LOG_SHARPNESS = 15.0


@keras.saving.register_keras_serializable(package="tfcaps")
@dataclass(eq=False)
class DynamicRouting(Routing):
    """Routes each child to the parents that agree with its vote.

    With votes `û`, agreements `b` (zero at first), bias `β` and the sharpness
    `λ`, each iteration is

        c_ij = softmax_j(λ b_ij)
        v_j  = squash(sum_i c_ij û_ij + β_j)
        b_ij = b_ij + û_ij · v_j            (not after the last iteration)

    The agreements are `û_ij · (v_1j + v_2j + ...)`, so the loop carries the sum
    of the poses `[b, j, d]` and no logits. The paper's pseudo-code updates the
    logits once more at the end, without effect. What is not listed is as in
    `Routing`.

    Args:
        iterations: Int. One iteration couples every child equally with all
            parents. Defaults to `3`.
        gradient: As in `Routing`. The published REM results have `"last"`. A
            loss on the couplings themselves reaches the votes in both, with
            `"last"` those of the last iteration. Defaults to `"last"`.
        leaky: Bool. Let parents also compete with an orphan parent of agreement
            `orphan`, whose share is dropped, so that a child may belong nowhere
            and its couplings sum to less than one. Defaults to `False`.
        sharpness: Float, `λ`. The more children there are, the shorter their
            votes, and the nearer all couplings to uniform; a factor such as 30
            lets hundreds of children disagree. Defaults to `1.0`, the paper's.
        orphan: Float. Agreement of the orphan parent: a child follows a parent
            only if it agrees with it more than that. Before the first
            iteration nobody has agreed, and the orphan counts as one of equal
            parents. Needs `leaky`. Defaults to `0.0`.
        sharpness_mode: `"fixed"`, or `"scheduled"`, a weight of the layer that
            begins at `sharpness` and that `tfcaps.callbacks.SharpnessSchedule`
            sets in training. Defaults to `"fixed"`.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    >>> import numpy as np
    >>> votes = np.ones((2, 6, 3, 4), "float32")  # [b, i, j, d]
    >>> tuple(DynamicRouting(iterations=2)(votes).couplings.shape)
    (2, 6, 3)

    References:
        - Sabour, Frosst, Hinton, 2017, https://arxiv.org/abs/1710.09829,
          procedure 1
        - Sabour's code, https://github.com/Sarasra/models, `leaky_routing`
          (`leaky`)
    """

    vote_free = True
    ignores_silent = True
    own_kinds = {
        "leaky": one_of(False, True),
        "orphan": FINITE,
        "sharpness_mode": one_of("fixed", "scheduled"),
    }
    iterations: int = 3
    gradient: str = "last"
    leaky: bool = False
    sharpness: float = 1.0
    orphan: float = 0.0
    sharpness_mode: str = "fixed"
    silent_parents: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.orphan and not self.leaky:
            raise ValueError(
                "`orphan` needs `leaky=True`, without which there is no orphan "
                f"parent. Received: orphan={self.orphan}."
            )

    def weights(
        self, children: int, parents: int, dim: int
    ) -> dict[str, Weight]:
        weights = super().weights(children, parents, dim)
        if self.sharpness_mode != "fixed":
            start = keras.initializers.Constant(math.log(self.sharpness))
            weights["log_sharpness"] = Weight((), start, trainable=False)
        return weights

    def route(
        self,
        votes: Votes,
        activations: Tensor | None,
        bias: Tensor | None,
        log_sharpness: Tensor | None = None,
    ) -> Routed:
        del activations  # vector capsules carry theirs in the votes' lengths
        bias = 0.0 if bias is None else bias
        sharpness: Tensor = self.sharpness
        if log_sharpness is not None:
            limit = _LARGEST_LOG_SHARPNESS
            sharpness = ops.exp(ops.clip(log_sharpness, -limit, limit))

        def couple(agreed: Tensor) -> Tensor:
            agreements = votes.agreement(agreed)
            if self.leaky:
                lone = ops.zeros_like(agreements[..., :1]) + self.orphan
                agreements = ops.concatenate([agreements, lone], axis=-1)
            shares = softmax(sharpness * agreements, self.silent_parents)
            return shares[..., :-1] if self.leaky else shares

        def add_poses(_: Tensor, agreed: Tensor) -> Tensor:
            couplings = couple(agreed)
            return agreed + self._squash(votes.weighted_sum(couplings) + bias)

        agreed = votes.zero_poses()
        if self.iterations > 1:
            # Equal couplings need no logits and no weights.
            agreed = self._squash(votes.sum() / self._rivals(votes) + bias)
        is_full = self.gradient == "full"
        agreed = repeat(add_poses, agreed, self.iterations - 2, is_full)
        agreed = self.constant(agreed)
        couplings = votes.zero_couplings() + 1.0 / self._rivals(votes)
        if self.iterations > 1:
            couplings = couple(agreed)
        couplings = self.rounded(couplings)
        weights = self.constant(couplings)
        poses = self._squash(votes.weighted_sum(weights) + bias)
        return Routed(poses, length(poses), couplings)

    def _rivals(self, votes: Votes) -> int:
        """Returns the number of parents that compete for a child."""
        return votes.num_parents + self.leaky + self.silent_parents

    def _squash(self, sums: Tensor) -> Tensor:
        """Turns weighted sums `[b, j, d]` into poses."""
        return squash(sums)

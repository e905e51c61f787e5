"""Dynamic routing between capsules: routing by agreement."""

from typing import Any

import keras
from keras import ops

from tfcaps.ops import Tensor, check_mode, length, softmax, squash
from tfcaps.routing.loop import repeat
from tfcaps.routing.routing import (
    Routed,
    Routing,
    check_gradient,
    check_iterations,
    check_routing_levels,
)
from tfcaps.routing.votes import Votes


@keras.saving.register_keras_serializable(package="tfcaps")
class DynamicRouting(Routing):
    """Routes each child to the parents that agree with its vote.

    With votes `û`, logits `b` (zero at first) and bias `β`, each iteration is

        c_ij = softmax_j(b_ij)
        v_j  = squash(sum_i c_ij û_ij + β_j)
        b_ij = b_ij + û_ij · v_j            (not after the last iteration)

    The logits are `û_ij · (v_1j + v_2j + ...)`, so the loop carries the sum of
    the poses `[b, j, d]` and no logits. The last iteration stands outside the
    loop. The paper's pseudo-code updates the logits once more at the end; that
    update has no effect, and the couplings returned are those that made the
    poses.

    Args:
        iterations: Int, at least 1. One iteration couples every child equally
            with all parents. Defaults to `3`.
        gradient: `"last"` treats the couplings as constants of the backward
            pass, as in the published REM results; `"full"` differentiates
            through all iterations. The outputs are the same. A loss on the
            couplings themselves reaches the votes in both, with `"last"` those
            of the last iteration. Defaults to `"last"`.
        levels: Int or `None`. Round the couplings of the last iteration to this
            many levels, see `tfcaps.rem.quantize`; they are not renormalised
            and carry no gradient. Meant for inference. Defaults to `None`.
        leaky: Bool. Let parents also compete with an orphan parent of logit 0,
            whose share is dropped, so that a child may belong nowhere and its
            couplings sum to less than one. Defaults to `False`.
        levels_mode: `"midtread"` or `"midrise"`, what kind of levels, see
            `tfcaps.rem.quantize`. Defaults to `"midtread"`.

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
    """

    vote_free = True
    ignores_silent = True

    def __init__(
        self,
        iterations: int = 3,
        gradient: str = "last",
        levels: int | None = None,
        leaky: bool = False,
        levels_mode: str = "midtread",
    ):
        self.iterations = check_iterations(iterations)
        self.gradient = check_gradient(gradient)
        self.levels = check_routing_levels(levels)
        self.levels_mode = check_mode(levels_mode, "levels_mode")
        self.leaky = bool(leaky)

    def route(
        self, votes: Votes, activations: Tensor | None, bias: Tensor | None
    ) -> Routed:
        del activations  # vector capsules carry theirs in the votes' lengths
        bias = 0.0 if bias is None else bias

        def add_poses(_: Tensor, agreed: Tensor) -> Tensor:
            couplings = self._couplings(votes.agreement(agreed))
            return agreed + self._squash(votes.weighted_sum(couplings) + bias)

        agreed = votes.zero_poses()
        if self.iterations > 1:
            # Equal couplings need no logits and no weights.
            rivals = votes.num_parents + self.leaky
            agreed = self._squash(votes.sum() / rivals + bias)
        agreed = repeat(add_poses, agreed, self.iterations - 2)
        if self.gradient == "last":
            agreed = ops.stop_gradient(agreed)
        couplings = self.rounded(self._couplings(votes.agreement(agreed)))
        weights = couplings
        if self.gradient == "last":
            weights = ops.stop_gradient(couplings)
        poses = self._squash(votes.weighted_sum(weights) + bias)
        return Routed(poses, length(poses), couplings)

    def _couplings(self, logits: Tensor) -> Tensor:
        if not self.leaky:
            return softmax(logits)
        orphan = ops.zeros_like(logits[..., :1])
        with_orphan = ops.concatenate([logits, orphan], axis=-1)
        return softmax(with_orphan)[..., :-1]

    def _squash(self, sums: Tensor) -> Tensor:
        """Turns weighted sums `[b, j, d]` into poses."""
        return squash(sums)

    def get_config(self) -> dict[str, Any]:
        return {
            "iterations": self.iterations,
            "gradient": self.gradient,
            "levels": self.levels,
            "leaky": self.leaky,
            "levels_mode": self.levels_mode,
        }

"""Dynamic routing between capsules: routing by agreement."""

import math
from typing import Any

import keras
from keras import ops

from tfcaps.ops import Tensor, check_mode, length, softmax, squash
from tfcaps.routing.loop import repeat
from tfcaps.routing.routing import (
    Routed,
    Routing,
    Weight,
    check_gradient,
    check_iterations,
    check_routing_levels,
    check_sharpness,
    check_silent_parents,
)
from tfcaps.routing.votes import Votes

_SHARPNESS_MODES = ("fixed", "scheduled", "learned")
# Beyond it logits may overflow.
_LARGEST_LOG_SHARPNESS = 15.0


@keras.saving.register_keras_serializable(package="tfcaps")
class DynamicRouting(Routing):
    """Routes each child to the parents that agree with its vote.

    With votes `û`, agreements `b` (zero at first), bias `β` and the sharpness
    `λ`, each iteration is

        c_ij = softmax_j(λ b_ij)
        v_j  = squash(sum_i c_ij û_ij + β_j)
        b_ij = b_ij + û_ij · v_j            (not after the last iteration)

    The agreements are `û_ij · (v_1j + v_2j + ...)`, so the loop carries the sum
    of the poses `[b, j, d]` and no logits. The last iteration stands outside
    the loop. The paper's pseudo-code updates the logits once more at the end;
    that update has no effect, and the couplings returned are those that made
    the poses.

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
        leaky: Bool. Let parents also compete with an orphan parent of agreement
            `orphan`, whose share is dropped, so that a child may belong nowhere
            and its couplings sum to less than one. Defaults to `False`.
        levels_mode: `"midtread"` or `"midrise"`, what kind of levels, see
            `tfcaps.rem.quantize`. Defaults to `"midtread"`.
        sharpness: Float above 0. Factor `λ` of the agreements before the
            softmax. The more children there are, the shorter their votes, and
            the nearer all couplings to uniform; a factor such as 30 lets
            hundreds of children disagree. Defaults to `1.0`, the paper's.
        orphan: Float. Agreement of the orphan parent: a child follows a parent
            only if it agrees with it more than that. Before the first
            iteration nobody has agreed, and the orphan counts as one of equal
            parents. Needs `leaky`. Defaults to `0.0`.
        sharpness_mode: `"fixed"`; `"scheduled"`, a weight of the layer that
            `tfcaps.rem.SharpnessSchedule` sets in training; or `"learned"`, a
            trainable weight. Both begin at `sharpness`. With `gradient="last"`
            only a loss on the couplings reaches a learned one. Defaults to
            `"fixed"`.
        silent_parents: Int. Further parents for which every child votes zero:
            they compete for children, and are left out of all outputs.
            `tfcaps.rem.compact` counts those that it removes. Defaults to `0`.

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

    def __init__(
        self,
        iterations: int = 3,
        gradient: str = "last",
        levels: int | None = None,
        leaky: bool = False,
        levels_mode: str = "midtread",
        sharpness: float = 1.0,
        orphan: float = 0.0,
        sharpness_mode: str = "fixed",
        silent_parents: int = 0,
    ):
        self.iterations = check_iterations(iterations)
        self.gradient = check_gradient(gradient)
        self.levels = check_routing_levels(levels)
        self.levels_mode = check_mode(levels_mode, "levels_mode")
        self.leaky = bool(leaky)
        self.sharpness = check_sharpness(sharpness)
        self.orphan = float(orphan)
        self.sharpness_mode = sharpness_mode
        self.silent_parents = check_silent_parents(silent_parents)
        self._check_abstention()

    def _check_abstention(self) -> None:
        if not math.isfinite(self.orphan):
            raise ValueError(
                "`orphan` must be a finite number. Received: "
                f"orphan={self.orphan}."
            )
        if self.sharpness_mode not in _SHARPNESS_MODES:
            raise ValueError(
                f"`sharpness_mode` must be one of {_SHARPNESS_MODES}. "
                f"Received: sharpness_mode={self.sharpness_mode!r}."
            )
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
            # As a logarithm, which a step of Adam moves by a share.
            weights["log_sharpness"] = Weight(
                (),
                keras.initializers.Constant(math.log(self.sharpness)),
                trainable=self.sharpness_mode == "learned",
            )
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
        if self.gradient == "last":
            agreed = ops.stop_gradient(agreed)
        couplings = votes.zero_couplings() + 1.0 / self._rivals(votes)
        if self.iterations > 1:
            couplings = couple(agreed)
        couplings = self.rounded(couplings)
        weights = couplings
        if self.gradient == "last":
            weights = ops.stop_gradient(couplings)
        poses = self._squash(votes.weighted_sum(weights) + bias)
        return Routed(poses, length(poses), couplings)

    def _rivals(self, votes: Votes) -> int:
        """Returns the number of parents that compete for a child."""
        return votes.num_parents + self.leaky + self.silent_parents

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
            "sharpness": self.sharpness,
            "orphan": self.orphan,
            "sharpness_mode": self.sharpness_mode,
            "silent_parents": self.silent_parents,
        }

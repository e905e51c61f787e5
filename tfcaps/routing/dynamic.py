"""Dynamic routing between capsules: routing by agreement."""

from typing import Any

import keras
from keras import ops

from tfcaps.ops import (
    Tensor,
    as_float32,
    check_levels,
    dequantize,
    is_integer,
    length,
    quantize,
    squash,
)
from tfcaps.routing.loop import repeat
from tfcaps.routing.routing import Routed, Routing
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
            through all iterations. The outputs are the same. Defaults to
            `"last"`.
        levels: Int or `None`. Round the couplings of the last iteration to this
            many levels, see `tfcaps.rem.quantize`; they are not renormalised
            and carry no gradient. Meant for inference. Defaults to `None`.

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

    def __init__(
        self,
        iterations: int = 3,
        gradient: str = "last",
        levels: int | None = None,
    ):
        if not is_integer(iterations):
            raise ValueError(
                "`iterations` must be an integer. Received: "
                f"iterations={iterations!r}."
            )
        if iterations < 1:
            raise ValueError(
                "`iterations` must be at least 1. Received: "
                f"iterations={iterations}. Use 1 for equal couplings."
            )
        if gradient not in ("last", "full"):
            raise ValueError(
                '`gradient` must be "last" or "full". Received: '
                f"gradient={gradient!r}."
            )
        if levels is not None:
            check_levels(levels)
            levels = int(levels)
        self.iterations = int(iterations)
        self.gradient = gradient
        self.levels = levels

    def route(
        self, votes: Votes, activations: Tensor | None, bias: Tensor | None
    ) -> Routed:
        del activations  # vector capsules carry theirs in the votes' lengths
        bias = 0.0 if bias is None else as_float32(bias)
        constant = self.gradient == "last"
        early = votes.stop_gradient() if constant else votes

        def add_poses(agreed: Tensor) -> Tensor:
            couplings = ops.softmax(early.agreement(agreed), axis=-1)
            return agreed + squash(early.weighted_sum(couplings) + bias)

        agreed = repeat(add_poses, votes.zero_poses(), self.iterations - 1)
        couplings = ops.softmax(early.agreement(agreed), axis=-1)
        if constant:
            couplings = ops.stop_gradient(couplings)
        if self.levels is not None:
            codes = quantize(couplings, self.levels)
            couplings = dequantize(codes, self.levels)
        poses = squash(votes.weighted_sum(couplings) + bias)
        return Routed(poses, length(poses), couplings)

    def get_config(self) -> dict[str, Any]:
        return {
            "iterations": self.iterations,
            "gradient": self.gradient,
            "levels": self.levels,
        }

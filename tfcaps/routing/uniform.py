"""Uniform routing: every child belongs equally to all parents."""

from typing import Any

import keras

from tfcaps.ops import Tensor, check_mode, length, squash
from tfcaps.routing.routing import (
    Routed,
    Routing,
    check_routing_levels,
    check_silent_parents,
)
from tfcaps.routing.votes import Votes


@keras.saving.register_keras_serializable(package="tfcaps")
class UniformRouting(Routing):
    """Couples every child equally with all parents, whatever it votes.

    `v_j = squash(sum_i û_ij / J + β_j)`, which is dynamic routing with one
    iteration. It is what other routings are to be compared with; its parse
    trees are all the same.

    Args:
        levels: Int or `None`. Round the couplings to this many levels, see
            `tfcaps.rem.quantize`. Defaults to `None`.
        levels_mode: `"midtread"` or `"midrise"`, what kind of levels, see
            `tfcaps.rem.quantize`. Defaults to `"midtread"`.
        silent_parents: Int. Further parents for which every child votes zero:
            they compete for children, and are left out of all outputs.
            `tfcaps.rem.compact` counts those that it removes. Defaults to `0`.

    Raises:
        ValueError: If an argument is out of range.

    References:
        - Gu, Tresp, 2020, https://arxiv.org/abs/2003.06854
    """

    vote_free = True
    ignores_silent = True

    def __init__(
        self,
        levels: int | None = None,
        levels_mode: str = "midtread",
        silent_parents: int = 0,
    ):
        self.levels = check_routing_levels(levels)
        self.levels_mode = check_mode(levels_mode, "levels_mode")
        self.silent_parents = check_silent_parents(silent_parents)

    def route(
        self, votes: Votes, activations: Tensor | None, bias: Tensor | None
    ) -> Routed:
        del activations
        rivals = votes.num_parents + self.silent_parents
        share = votes.zero_couplings() + 1.0 / rivals
        couplings = self.rounded(share)
        # Any of them, since they are all the same.
        total = couplings[:, :1, :1] * votes.sum()
        poses = squash(total if bias is None else total + bias)
        return Routed(poses, length(poses), couplings)

    def get_config(self) -> dict[str, Any]:
        return {
            "levels": self.levels,
            "levels_mode": self.levels_mode,
            "silent_parents": self.silent_parents,
        }

"""Uniform routing: every child belongs equally to all parents."""

from dataclasses import dataclass

import keras

from tfcaps.ops import Tensor, length, squash
from tfcaps.routing.routing import Routed, Routing
from tfcaps.routing.votes import Votes


@keras.saving.register_keras_serializable(package="tfcaps")
@dataclass(eq=False)
class UniformRouting(Routing):
    """Couples every child equally with all parents, whatever it votes.

    `v_j = squash(sum_i û_ij / J + β_j)`, which is dynamic routing with one
    iteration. It is what other routings are to be compared with; its parse
    trees are all the same. Arguments are as in `Routing`.

    References:
        - Gu, Tresp, 2020, https://arxiv.org/abs/2003.06854
    """

    vote_free = True
    ignores_silent = True
    silent_parents: int = 0

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

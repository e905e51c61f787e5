"""Self-attention routing of Efficient-CapsNet."""

import math
from dataclasses import dataclass

import keras

from tfcaps.ops import Tensor, efficient_squash, length, softmax
from tfcaps.routing.routing import Routed, Routing, Weight
from tfcaps.routing.votes import Votes


@keras.saving.register_keras_serializable(package="tfcaps")
@dataclass(eq=False)
class SelfAttentionRouting(Routing):
    """Routes each child by how well its vote agrees with all others, once.

    With votes `û` of `d` components, a coupling bias `β` and the sharpness `λ`

        a_ij = û_ij · (sum_k û_kj) / sqrt(d)
        c_ij = softmax_j(λ a_ij)
        v_j  = efficient_squash(sum_i (c_ij + β_ij) û_ij)

    The sum over `k` is taken first, so the matrix of all pairs of children is
    never built. The couplings returned, and rounded where `levels` says so, are
    `c`: the effective `c + β` are no shares and may be negative. What is not
    listed is as in `Routing`.

    Args:
        gradient: As in `Routing`. Defaults to `"full"`, as the authors do.
        sharpness: `λ`, as in `Routing`. Without it couplings of 0 and 1 need
            long votes, whose class capsules all have lengths near 1, so that
            clear trees cost accuracy. Defaults to `1.0`, the paper's.

    Call arguments:
        bias: Coupling bias `[i, j]`, added after the softmax, or `None`.

    References:
        - Mazzia, Salvetti, Chiaberge, 2021, https://arxiv.org/abs/2101.12491
    """

    vote_free = True
    ignores_silent = True
    gradient: str = "full"
    silent_parents: int = 0
    sharpness: float = 1.0

    @property
    def vote_passes(self) -> int:
        return 3  # two sums, and the agreement with the first

    def weights(
        self, children: int, parents: int, dim: int
    ) -> dict[str, Weight]:
        del dim
        return {"bias": Weight((children, parents), "zeros", per_child=True)}

    def route(
        self, votes: Votes, activations: Tensor | None, bias: Tensor | None
    ) -> Routed:
        del activations
        everyone = votes.sum()
        scale = self.sharpness / math.sqrt(everyone.shape[-1])
        agreements = scale * votes.agreement(everyone)
        couplings = self.rounded(softmax(agreements, self.silent_parents))
        effective = self.constant(couplings)
        if bias is not None:
            if tuple(bias.shape) != tuple(couplings.shape[1:]):
                raise ValueError(
                    "The bias of self-attention routing is added to couplings "
                    "and must have the shape [children, parents]. Received: "
                    f"shape={tuple(bias.shape)} for couplings "
                    f"{tuple(couplings.shape)}."
                )
            effective = effective + bias
        poses = efficient_squash(votes.weighted_sum(effective))
        return Routed(poses, length(poses), couplings)

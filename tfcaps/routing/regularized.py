"""Routing by coefficients that are learnt over the training set."""

from dataclasses import dataclass

import keras
from keras import ops

from tfcaps.ops import Tensor, length, squash
from tfcaps.routing.routing import (
    NOT_NEGATIVE,
    Routed,
    Routing,
    Weight,
    one_of,
)
from tfcaps.routing.votes import Votes


@keras.saving.register_keras_serializable(package="tfcaps")
@dataclass(eq=False)
class RegularizedRouting(Routing):
    """Routes all samples alike, by coefficients learnt with a penalty.

    `s_j = sum_i b_ij û_ij` and `v_j = squash(s_j + β_j)`. The coefficients `b`
    belong to the layer, not to the sample; they are not normalised and may be
    negative. They climb, by steps of `rate`, the objective

        mean_n sum_j δ_nj |s_nj|^2 - strength * sum_j penalty(b_j)

    with `δ` +1 for the classes of sample n and -1 for all others, and the
    penalty `|b_j|_1` or `|b_j|_2^2`. The optimiser moves all other weights, and
    `b` moves in turn: a layer that is called in training with `labels` first
    makes one step of `b` on the batch, with the votes of the newest weights,
    and then routes. (The paper makes that step with the batch before.) Without
    labels the coefficients stay as they are, 1/J at first.

    Since `b` is the same for all samples, each class has one parse tree and an
    entropy of 0, which says nothing. `levels` and `mode` are as in `Routing`,
    of coefficients clipped to [0, 1].

    Args:
        penalty: `"l1"` or `"l2"`. Defaults to `"l2"`.
        strength: Float. Weight of the penalty, `λ` of the paper. Defaults to
            `0.001`.
        rate: Float. Size of a step, `γ` of the paper, which does not give it.
            Defaults to `1e-4`.

    Call arguments:
        coefficients: Tensor `[i, j]`; 1/J if it is not given, its first value.

    References:
        - The routing "that incorporates a regularized quadratic programming
          problem", tested on MNIST, Fashion-MNIST and CIFAR-10; our source
          gives neither its title nor its authors
    """

    vote_free = True
    learns_from_labels = True
    own_kinds = {
        "penalty": one_of("l1", "l2"),
        "strength": NOT_NEGATIVE,
        "rate": NOT_NEGATIVE,
    }
    penalty: str = "l2"
    strength: float = 0.001
    rate: float = 1e-4

    def weights(
        self, children: int, parents: int, dim: int
    ) -> dict[str, Weight]:
        start = keras.initializers.Constant(1.0 / parents)
        shape = (children, parents)
        weights = super().weights(children, parents, dim)
        weights["coefficients"] = Weight(shape, start, False, per_child=True)
        return weights

    def route(
        self,
        votes: Votes,
        activations: Tensor | None,
        bias: Tensor | None,
        coefficients: Tensor | None = None,
    ) -> Routed:
        del activations
        if coefficients is None:
            coefficients = 1.0 / votes.num_parents
        couplings = self.rounded(votes.zero_couplings() + coefficients)
        total = votes.weighted_sum(couplings)
        poses = squash(total if bias is None else total + bias)
        return Routed(poses, length(poses), couplings)

    def step(
        self, votes: Tensor | Votes, coefficients: Tensor, targets: Tensor
    ) -> Tensor:
        """Returns the coefficients after one step on a batch.

            b_ij + 2 rate * (mean_n δ_nj û_nij · s_nj - strength * b_ij)

        for the L2 penalty; for L1, `b_ij` at the end is `sign(b_ij) / 2`.

        Args:
            votes: Votes `[b, i, j, d]`, constants here.
            coefficients: Tensor `[i, j]`.
            targets: Tensor `[b, j]`, 1 for the classes of a sample, else 0.

        Returns:
            Tensor `[i, j]`.
        """
        if not isinstance(votes, Votes):
            votes = Votes(votes)
        votes = votes.stop_gradient()
        coefficients = ops.cast(coefficients, votes.dtype)
        sums = votes.weighted_sum(votes.zero_couplings() + coefficients)
        signs = ops.expand_dims(2.0 * ops.cast(targets, votes.dtype) - 1.0, 1)
        pull = ops.mean(signs * votes.agreement(sums), axis=0)
        shrink = coefficients
        if self.penalty == "l1":
            shrink = 0.5 * ops.sign(coefficients)
        return coefficients + 2.0 * self.rate * (pull - self.strength * shrink)

"""Distances of couplings from uniform ones."""

import math

from keras import ops

from tfcaps.ops import Tensor


def t_score(couplings: Tensor) -> Tensor:
    """Returns how tree-like each sample's couplings are.

    `T = mean_i [1 - H(c_i) / ln J]` with the entropy `H` over parents in nats:
    0 if every child is coupled equally to all parents, 1 if each child has one
    parent, as in a tree.

    Args:
        couplings: Unquantised couplings `[b, i, j]`.

    Returns:
        T-scores `[b]`, float32, in [0, 1] where the couplings of a child sum to
        1. (Those of `RegularizedRouting` do not, nor with `leaky=True`, where a
        child that is coupled with no parent counts as one that has chosen.)
        With a single parent there is nothing to choose, and the score is 1.

    References:
        - Peer, Stabinger, Rodriguez-Sanchez, 2018,
          https://arxiv.org/abs/1812.09707
    """
    return ops.mean(t_scores_of_children(couplings), axis=-1)


def t_scores_of_children(couplings: Tensor) -> Tensor:
    """Returns how clearly each child chooses a parent.

    Args:
        couplings: Unquantised couplings `[b, i, j]`.

    Returns:
        `1 - H(c_i) / ln J`, `[b, i]`, whose mean over children is `t_score`.
    """
    parents = couplings.shape[-1]
    if parents == 1:
        return ops.ones_like(couplings[..., 0])
    # Coefficients that are no shares may be negative; these count as none.
    shares = ops.maximum(couplings, 0.0)
    nats = -ops.sum(shares * ops.log(shares + 1e-11), axis=-1)
    return 1.0 - nats / math.log(parents)

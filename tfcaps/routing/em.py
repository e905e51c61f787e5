"""EM routing of matrix capsules."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
from keras import ops

from tfcaps.ops import Tensor
from tfcaps.routing.loop import repeat
from tfcaps.routing.routing import ABOVE_0, Routed, Routing, Weight, one_of
from tfcaps.routing.votes import Votes


class _Variant(NamedTuple):
    """The amount added to masses, and the new share of a mean."""

    least_mass: float
    freshness: float


_VARIANTS = {"paper": _Variant(1e-9, 1.0), "code": _Variant(1e-5, 0.9)}

# Squared distance in deviations beyond which votes are equally far. Ordinary
# votes, of about 1, from a parent with the least variance are at 1e9.
_FARTHEST = 1e20

# Beyond every gain that is learnt, in products of float32 too.
_ABSENT = 1e30


class _Fit(NamedTuple):
    """The Gaussians of an M-step, and the log-odds of their activations."""

    means: Tensor
    variances: Tensor
    logits: Tensor


@keras.saving.register_keras_serializable(package="tfcaps")
@dataclass(eq=False)
class EMRouting(Routing):
    """Explains the votes by one Gaussian for each parent.

    With votes `û`, child activations `a` and shares `r` (equal at first), each
    iteration t = 1, 2, ... is an M-step

        R_ij  = r_ij a_i
        S_j   = sum_i R_ij
        μ_jd  = sum_i R_ij û_ijd / S_j
        σ²_jd = sum_i R_ij (û_ijd - μ_jd)^2 / S_j + epsilon
        a_j   = sigmoid(λ_t (β_a_j - S_j sum_d (β_u_j + log σ_jd)))
        λ_t   = inverse_temperature * (1 - 0.95^t)

    and, but for the last iteration, an E-step: `r_ij` is the softmax of
    `log a_j + log N(û_ij; μ_j, σ²_j)` over all parents of child i. In
    `ConvCaps` these are those of all windows that contain the child.

    `variant="code"` is the form that the authors published later: `μ` is nine
    tenths of the above and one of its value in the iteration before (0 at
    first), and the logarithm of the odds of `a_j` is

        λ_t (S_j (-sum_d log σ²_jd - β_u_j d (log 2π + 1)) - 5000 β_a_j)

    The shares are not normalised again after the multiplication by `a_i`, which
    would cancel it. What is not listed is as in `Routing`.

    Args:
        inverse_temperature: Float. What `λ` rises towards. Defaults to `0.01`.
        epsilon: Float. The least variance. Defaults to `1e-9`.
        gradient: As in `Routing`; the couplings are the shares of the last
            M-step. Defaults to `"full"`, as the authors do.
        variant: `"paper"` or `"code"`. Defaults to `"paper"`.

    Call arguments:
        activations: Child activations `[b, i]` in [0, 1]; all 1 if not given.
        bias: Tensor `[j, d]` added to the means; layers do not make it.
        beta_u: Tensor `[j]`, cost of describing a component; 0 if not given.
        beta_a: Tensor `[j]`, gain of being active; 0 if not given. A parent
            whose gain is `absent` is never active, and no child's.

    References:
        - Hinton, Sabour, Frosst, 2018, "Matrix capsules with EM routing"
        - Gritzman, 2019, https://arxiv.org/abs/1907.00652
        - google-research/google-research, `capsule_em` (`variant="code"`)
    """

    explicit_activations = True
    replays = True
    own_kinds = {
        "inverse_temperature": ABOVE_0,
        "epsilon": ABOVE_0,
        "variant": one_of(*_VARIANTS),
    }
    iterations: int = 3
    inverse_temperature: float = 0.01
    epsilon: float = 1e-9
    gradient: str = "full"
    variant: str = "paper"

    @property
    def absent(self) -> float:
        """The `beta_a` of a parent that takes no part in the routing."""
        return -_ABSENT if self.variant == "paper" else _ABSENT

    @property
    def vote_passes(self) -> int:
        # Means, deviations and variances; distances in the E-step between.
        return 4 * self.iterations - 1

    def weights(
        self, children: int, parents: int, dim: int
    ) -> dict[str, Weight]:
        del children, dim
        return {
            name: Weight((parents,), "zeros") for name in ("beta_u", "beta_a")
        }

    def route(
        self,
        votes: Votes,
        activations: Tensor | None,
        bias: Tensor | None,
        beta_u: Tensor | None = None,
        beta_a: Tensor | None = None,
    ) -> Routed:
        even = votes.zero_couplings()
        mass = ops.ones_like(even[..., :1])
        if activations is not None:
            mass = ops.expand_dims(activations, -1)
        beta_u = 0.0 if beta_u is None else beta_u
        beta_a = 0.0 if beta_a is None else beta_a
        # A logit of nothing leaves no share to a parent that is absent.
        is_absent = ops.greater(beta_a * math.copysign(1, self.absent), 1e20)
        nothing = ops.where(is_absent, -1e30, 0.0)
        nothing = ops.cast(nothing, even.dtype)

        def maximize_and_expect(step: Tensor, state: Any) -> Any:
            shares, means = state
            fit = self._maximize(
                votes, shares * mass, means, step, beta_u, beta_a
            )
            return self._expect(votes, fit, nothing), fit.means

        shares, means = repeat(
            maximize_and_expect,
            (votes.compete(even + nothing), votes.zero_poses()),
            self.iterations - 1,
            differentiated=self.gradient == "full",
        )
        shares, means = self.constant(shares), self.constant(means)
        shares = self.rounded(shares)
        last = self.iterations - 1
        fit = self._maximize(votes, shares * mass, means, last, beta_u, beta_a)
        poses = fit.means if bias is None else fit.means + bias
        return Routed(poses, ops.sigmoid(fit.logits), shares)

    def _maximize(
        self,
        votes: Votes,
        weights: Tensor,
        before: Tensor,
        step: Tensor | int,
        beta_u: Tensor,
        beta_a: Tensor,
    ) -> "_Fit":
        """Fits Gaussians `[b, j, d]` to votes weighted by `[b, i, j]`."""
        form = _VARIANTS[self.variant]
        mass = ops.sum(weights, axis=1)
        shares = weights / (ops.expand_dims(mass, 1) + form.least_mass)
        fresh = votes.weighted_sum(shares)
        means = form.freshness * fresh + (1.0 - form.freshness) * before
        # What the variances' gradient by the means sums over the children,
        # their weighted deviations, is known without a pass over the votes.
        fixed = ops.stop_gradient(means)
        drift = (1.0 - form.freshness) * (fresh - before)
        drift += means * ops.expand_dims(
            form.least_mass / (mass + form.least_mass), -1
        )
        variances = votes.weighted_squares(shares, fixed) + self.epsilon
        variances -= 2.0 * ops.stop_gradient(drift) * (means - fixed)
        dim = means.shape[-1]
        width = ops.sum(ops.log(variances), axis=-1)
        if self.variant == "paper":
            logits = beta_a - mass * (dim * beta_u + 0.5 * width)
        else:
            room = dim * (math.log(2.0 * math.pi) + 1.0) * beta_u
            logits = -mass * (width + room) - 5000.0 * beta_a
        done = ops.cast(step, means.dtype) + 1.0
        temperature = self.inverse_temperature * (1.0 - ops.power(0.95, done))
        return _Fit(means, variances, temperature * logits)

    def _expect(self, votes: Votes, fit: "_Fit", nothing: Tensor) -> Tensor:
        """Returns each child's shares `[b, i, j]` of its parents."""
        # Without 2π, which is the same for all parents.
        width = ops.sum(ops.log(fit.variances), axis=-1)
        prior = ops.log(ops.sigmoid(fit.logits) + 1e-9)
        # Of a vote too far from all parents for a number, all are equally far.
        miss = ops.minimum(
            votes.squared_distances(fit.means, 1.0 / fit.variances), _FARTHEST
        )
        closeness = ops.expand_dims(prior - 0.5 * width, 1) - 0.5 * miss
        return votes.compete(closeness + nothing)

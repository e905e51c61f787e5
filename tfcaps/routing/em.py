"""EM routing of matrix capsules."""

from typing import Any

import keras
from keras import ops

from tfcaps.ops import Tensor
from tfcaps.routing.loop import repeat
from tfcaps.routing.routing import (
    Routed,
    Routing,
    Weight,
    check_gradient,
    check_iterations,
    check_routing_levels,
)
from tfcaps.routing.votes import Votes


@keras.saving.register_keras_serializable(package="tfcaps")
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

    The shares are not normalised again after the multiplication by `a_i`, as
    two public implementations do, which cancels the child's activation.

    Args:
        iterations: Int, at least 1. Defaults to `3`.
        inverse_temperature: Float. What `λ` rises towards. Defaults to `0.01`.
        epsilon: Float. The least variance; also added to masses and
            activations before a division or logarithm. Defaults to `1e-9`.
        gradient: `"full"` differentiates through all iterations, as the authors
            do; `"last"` treats the shares of the last M-step as constants of
            the backward pass. Defaults to `"full"`.
        levels: Int or `None`. Round the shares of the last M-step to this many
            levels, see `tfcaps.rem.quantize`. Defaults to `None`.

    Call arguments:
        votes: Tensor `[b, i, j, d]`, or `Votes`. Matrix votes are flattened.
        activations: Child activations `[b, i]` in [0, 1]; all 1 if not given.
        bias: Tensor `[j, d]` added to the means, or `None`. No weight of the
            published form; layers do not make it.
        beta_u: Tensor `[j]`, cost of describing a component; 0 if not given.
        beta_a: Tensor `[j]`, gain of being active; 0 if not given.

    Raises:
        ValueError: If an argument is out of range.

    References:
        - Hinton, Sabour, Frosst, 2018, "Matrix capsules with EM routing"
        - Gritzman, 2019, https://arxiv.org/abs/1907.00652
    """

    explicit_activations = True

    def __init__(
        self,
        iterations: int = 3,
        inverse_temperature: float = 0.01,
        epsilon: float = 1e-9,
        gradient: str = "full",
        levels: int | None = None,
    ):
        if inverse_temperature <= 0 or epsilon <= 0:
            raise ValueError(
                "`inverse_temperature` and `epsilon` must be positive. "
                f"Received: inverse_temperature={inverse_temperature}, "
                f"epsilon={epsilon}."
            )
        self.iterations = check_iterations(iterations)
        self.inverse_temperature = float(inverse_temperature)
        self.epsilon = float(epsilon)
        self.gradient = check_gradient(gradient)
        self.levels = check_routing_levels(levels)

    def weights(
        self, children: int, parents: int, dim: int
    ) -> dict[str, Weight]:
        del children, dim
        betas = Weight((parents,), "zeros")
        return {"beta_u": betas, "beta_a": betas}

    def route(
        self,
        votes: Votes,
        activations: Tensor | None,
        bias: Tensor | None,
        beta_u: Tensor | None = None,
        beta_a: Tensor | None = None,
    ) -> Routed:
        unit = ops.ones_like(votes.zero_couplings()[..., :1])
        mass = unit
        if activations is not None:
            mass = ops.expand_dims(activations, -1)
        beta_u = 0.0 if beta_u is None else beta_u
        beta_a = 0.0 if beta_a is None else beta_a

        def expect_again(step: Tensor, shares: Tensor) -> Tensor:
            _, squares, variances, logits = self._maximize(
                votes, shares * mass, step, beta_u, beta_a
            )
            return self._expect(squares, variances, logits)

        shares = repeat(
            expect_again,
            votes.compete(votes.zero_couplings()),
            self.iterations - 1,
        )
        if self.gradient == "last":
            shares = ops.stop_gradient(shares)
        shares = self.rounded(shares)
        means, _, _, logits = self._maximize(
            votes, shares * mass, self.iterations - 1, beta_u, beta_a
        )
        if bias is not None:
            means = means + bias
        return Routed(means, ops.sigmoid(logits), shares)

    def _maximize(
        self,
        votes: Votes,
        weights: Tensor,
        step: Tensor | int,
        beta_u: Tensor,
        beta_a: Tensor,
    ) -> tuple[Tensor, Votes, Tensor, Tensor]:
        """Returns means, squared deviations, variances and log-odds."""
        mass = ops.sum(weights, axis=1)
        shares = weights / (ops.expand_dims(mass, 1) + self.epsilon)
        means = votes.weighted_sum(shares)
        squares = votes.squared_deviations(means)
        variances = squares.weighted_sum(shares) + self.epsilon
        dim = means.shape[-1]
        entropy = dim * beta_u + 0.5 * ops.sum(ops.log(variances), axis=-1)
        done = ops.cast(step, means.dtype) + 1.0
        temperature = self.inverse_temperature * (1.0 - ops.power(0.95, done))
        logits = temperature * (beta_a - entropy * mass)
        return means, squares, variances, logits

    def _expect(
        self, squares: Votes, variances: Tensor, logits: Tensor
    ) -> Tensor:
        """Returns each child's shares `[b, i, j]` of its parents."""
        # Without 2π, which is the same for all parents.
        width = ops.sum(ops.log(variances), axis=-1)
        prior = ops.log(ops.sigmoid(logits) + self.epsilon)
        miss = squares.agreement(1.0 / variances)
        fit = ops.expand_dims(prior - 0.5 * width, 1) - 0.5 * miss
        return squares.compete(fit)

    def get_config(self) -> dict[str, Any]:
        return {
            "iterations": self.iterations,
            "inverse_temperature": self.inverse_temperature,
            "epsilon": self.epsilon,
            "gradient": self.gradient,
            "levels": self.levels,
        }

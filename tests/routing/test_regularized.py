"""Routing by coefficients: what it computes, and how they climb."""

import numpy as np
import pytest

from tests import reference
from tests.gradients import value_and_gradients
from tests.tolerance import assert_close
from tfcaps.ops import squash
from tfcaps.routing import RegularizedRouting

PENALTIES = ["l1", "l2"]


def random_batch(rng, batch=4, children=5, parents=3, dim=4):
    """Returns votes, coefficients of both signs and targets."""
    votes = rng.normal(size=(batch, children, parents, dim))
    coefficients = rng.normal(size=(children, parents))
    targets = np.eye(parents)[rng.integers(parents, size=batch)]
    # One with two classes, one with none.
    targets[:2] = np.array([[1, 1, 0], [0, 0, 0]])[:, :parents]
    return [array.astype("float32") for array in (votes, coefficients, targets)]


@pytest.mark.parametrize("seed", [1, 2])
def test_routing_equals_the_loops(seed):
    rng = np.random.default_rng(seed)
    votes, coefficients, _ = random_batch(rng)
    bias = rng.normal(size=(3, 4)).astype("float32")
    routed = RegularizedRouting()(votes, None, bias, coefficients=coefficients)
    poses = reference.regularized_routing(votes, coefficients, bias)
    assert_close(routed.poses, poses, atol=1e-5)
    for couplings in np.asarray(routed.couplings):
        np.testing.assert_array_equal(couplings, coefficients)


def test_rounded_coefficients_make_the_poses(rng):
    votes, coefficients, _ = random_batch(rng)
    routed = RegularizedRouting(levels=5)(votes, coefficients=coefficients)
    rounded = np.round(4 * np.clip(coefficients, 0, 1)) / 4
    assert_close(routed.couplings[1], rounded, atol=1e-7)
    poses = squash(np.einsum("ij,bijd->bjd", rounded, votes))
    assert_close(routed.poses, poses)


@pytest.mark.parametrize("strength", [0.001, 10.0])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_step_climbs_the_objective_as_the_gradient_says(penalty, strength, rng):
    votes, coefficients, targets = random_batch(rng)
    rate = 1e-3

    def objective(values):
        return reference.regularized_objective(
            votes, values, targets, penalty, strength
        )

    routing = RegularizedRouting(penalty, strength, rate)
    stepped = np.asarray(routing.step(votes, coefficients, targets))
    assert objective(stepped) > objective(coefficients)

    slopes = np.zeros_like(coefficients, "float64")
    for index in np.ndindex(slopes.shape):
        nudge = np.zeros_like(slopes)
        nudge[index] = 1e-6
        slopes[index] = (
            objective(coefficients + nudge) - objective(coefficients - nudge)
        ) / 2e-6
    assert_close(stepped - coefficients, rate * slopes)


def test_zero_coefficients_stay_zero(rng):
    votes, coefficients, targets = random_batch(rng)
    for penalty in PENALTIES:
        routing = RegularizedRouting(penalty, strength=1.0, rate=0.1)
        assert not np.any(routing.step(votes, 0 * coefficients, targets))


def test_votes_are_constants_of_the_step(rng):
    votes, coefficients, targets = random_batch(rng)
    _, (gradient,) = value_and_gradients(
        lambda votes: RegularizedRouting().step(votes, coefficients, targets),
        votes,
    )
    assert not np.any(gradient)

"""EM routing: what it computes."""

import numpy as np
import pytest

from tests import reference
from tests.golden import assert_golden, load
from tests.gradients import value_and_gradients
from tests.tolerance import assert_all_close, assert_all_equal, assert_close
from tfcaps.routing import EMRouting


@pytest.mark.parametrize("temperature", [0.01, 0.1])
@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_routing_equals_the_public_implementation(iterations, temperature):
    golden = load("07_em_routing")
    epsilon = float(golden["eps_f64"])
    routed = EMRouting(iterations, temperature, epsilon=epsilon)(
        golden["votes"], golden["input_activations"], **weights_of(golden)
    )
    routed = routed._asdict()
    routed["assignments"] = routed.pop("couplings")
    at = f"lambda{temperature}".replace(".", "p")
    assert_golden(golden, f"{{}}_{at}_iter{iterations}", 2e-5, **routed)


@pytest.fixture
def votes(rng):
    return rng.normal(size=(2, 9, 3, 4)).astype("float32")


@pytest.fixture
def activations(rng):
    return rng.uniform(0.1, 1, size=(2, 9)).astype("float32")


def weights_of(golden):
    return {name: golden[name] for name in ("beta_u", "beta_a")}


def test_gradients_equal_the_public_ones():
    golden = load("07_em_routing")
    routing = EMRouting(3, 0.01)
    _, (votes, activations, weights) = value_and_gradients(
        lambda votes, activations, weights: routing(
            votes, activations, **weights
        )[:2],
        golden["votes"],
        golden["input_activations"],
        weights_of(golden),
        upstream=[golden["upstream_poses"], golden["upstream_activations"]],
    )
    gradients = {"votes": votes, "input_activations": activations, **weights}
    for name, gradient in gradients.items():
        expected = golden[f"grad_{name}_lambda0p01_iter3"]
        # Few are as small as what is added: most are compared relatively.
        assert np.mean(1e-3 * np.abs(expected) < 1e-6) < 0.06
        assert_close(gradient, expected, rtol=1e-3, err_msg=name)


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_the_other_variant_equals_the_authors_later_code(iterations):
    golden, at = load("07_em_routing_google_variant"), f"iter{iterations}"
    routing = EMRouting(
        iterations,
        inverse_temperature=float(golden["final_beta_f64"]),
        epsilon=float(golden["min_var_f64"]),
        variant="code",
    )
    poses, activations, _ = routing(
        golden["votes"],
        golden["input_activations"],
        beta_u=golden["sigma_biases"],
        beta_a=golden["activation_biases"],
    )
    outputs = {"poses": poses, "activations": activations}
    assert_golden(golden, f"{{}}_{at}", 2e-5, **outputs)
    logits = np.log(activations) - np.log1p(-activations)
    assert_golden(golden, f"{{}}_{at}", 1e-4, activation_logits=logits)


@pytest.mark.parametrize("shape", [(2, 12, 3, 4), (1, 20, 2, 16), (2, 9, 2, 1)])
@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_routing_equals_the_loops(iterations, shape, rng):
    parents = shape[2]
    votes = rng.normal(size=shape).astype("float32")
    activations = rng.uniform(0, 1, size=shape[:2]).astype("float32")
    beta_u, beta_a = rng.normal(size=(2, parents)).astype("float32")
    routed = EMRouting(iterations, 0.2, epsilon=1e-4)(
        votes, activations, beta_u=beta_u, beta_a=beta_a
    )
    expected = reference.em_routing(
        votes, activations, beta_u, beta_a, iterations, 0.2, epsilon=1e-4
    )
    assert_all_close(routed, expected, atol=2e-5)


def test_an_inactive_child_has_no_influence(votes, activations):
    activations[:, 4] = 0
    routed = EMRouting()(votes, activations)
    others = np.arange(9) != 4
    fewer = EMRouting()(votes[:, others], activations[:, others])
    assert_close(routed.poses, fewer.poses, atol=1e-5)
    assert_close(routed.activations, fewer.activations)
    _, (gradient,) = value_and_gradients(
        lambda votes: EMRouting()(votes, activations)[:2], votes
    )
    assert not np.any(gradient[:, 4])
    assert np.any(gradient[:, 5])


def test_without_activations_all_children_are_active(votes):
    assert_all_equal(
        EMRouting()(votes), EMRouting()(votes, np.ones((2, 9), "float32"))
    )


def test_bias_moves_the_means_alone(votes, rng):
    bias = rng.normal(size=(3, 4)).astype("float32")
    routed = EMRouting()(votes)
    moved = EMRouting()(votes, bias=bias)
    assert_close(moved.poses, routed.poses + bias)
    assert_all_equal(moved[1:], routed[1:])


def test_rounded_shares_make_the_means(votes, activations):
    routed = EMRouting(levels=5)(votes, activations)
    weights = np.asarray(routed.couplings) * activations[..., None]
    weights /= weights.sum(axis=1, keepdims=True)
    poses = np.einsum("bij,bijd->bjd", weights, votes)
    assert_close(routed.poses, poses, atol=1e-5)

"""Dynamic routing: what it computes."""

import numpy as np
import pytest

from tests import reference
from tests.golden import load
from tests.gradients import value_and_gradients
from tests.tolerance import assert_close
from tfcaps.ops import quantize
from tfcaps.routing import DynamicRouting

ITERATIONS = [1, 2, 3, 5]


def route_with_gradients(routing, golden, bias=None):
    """Returns the result of a routing and the gradients of votes and bias."""
    routed = routing(golden["votes"], bias=bias)
    bias = np.zeros_like(golden["votes"][0, 0]) if bias is None else bias

    _, gradients = value_and_gradients(
        lambda votes, bias: routing(votes, bias=bias).poses,
        golden["votes"],
        bias,
        upstream=golden["upstream"],
    )
    return routed, *gradients


def check_values(routed, golden, iterations):
    for name in ("poses", "activations", "couplings"):
        assert_close(
            getattr(routed, name),
            golden[f"{name}_iter{iterations}"],
            atol=1e-5,
            err_msg=name,
        )


@pytest.mark.parametrize("iterations", ITERATIONS)
def test_last_gradient_equals_the_public_implementation(iterations):
    golden = load("02_dynamic_routing")
    routed, votes_gradient, bias_gradient = route_with_gradients(
        DynamicRouting(iterations), golden, golden["bias"]
    )
    check_values(routed, golden, iterations)
    expected = golden[f"grad_votes_last_only_iter{iterations}"]
    assert_close(votes_gradient, expected, atol=1e-4)
    expected = golden[f"grad_bias_const_couplings_iter{iterations}"]
    assert_close(bias_gradient, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("gradient", "name"), [("full", "through"), ("last", "last_only")]
)
@pytest.mark.parametrize("iterations", ITERATIONS)
def test_routing_without_bias_equals_the_public_one(iterations, gradient, name):
    golden = load("02_dynamic_routing_nobias")
    routed, votes_gradient, _ = route_with_gradients(
        DynamicRouting(iterations, gradient), golden
    )
    check_values(routed, golden, iterations)
    expected = golden[f"grad_votes_{name}_iter{iterations}"]
    assert_close(votes_gradient, expected, atol=1e-4)


@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("levels", [5, 11])
def test_quantized_routing_equals_the_public_one(levels, iterations):
    golden = load(f"03_quantized_routing_K{levels}")
    routed, gradient, _ = route_with_gradients(
        DynamicRouting(iterations, levels=levels), golden, golden["bias"]
    )
    codes = np.asarray(quantize(routed.couplings, levels))
    np.testing.assert_array_equal(codes, golden[f"bin_index_iter{iterations}"])
    np.testing.assert_array_equal(
        codes + 1, golden[f"dictionary_bin_iter{iterations}"]
    )
    golden[f"couplings_iter{iterations}"] = golden[
        f"couplings_quantized_iter{iterations}"
    ]
    check_values(routed, golden, iterations)
    expected = golden[f"grad_votes_iter{iterations}"]
    assert_close(gradient, expected, atol=1e-4)


def test_coupling_on_an_edge_goes_down_and_leaves_the_bias_alone():
    golden = load("03_bin_edges")
    routed = DynamicRouting(1, levels=5)(
        golden["onedge_votes"], bias=golden["onedge_bias"]
    )
    for name in ("poses", "activations", "couplings"):
        expected = golden[f"onedge_{name}"]
        assert_close(getattr(routed, name), expected, atol=1e-5)
    assert not np.any(routed.couplings)


@pytest.mark.parametrize("iterations", ITERATIONS)
def test_routing_equals_the_loops(iterations, rng):
    votes = rng.normal(size=(2, 5, 3, 4)).astype("float32")
    bias = rng.normal(size=(3, 4)).astype("float32")
    routed = DynamicRouting(iterations)(votes, bias=bias)
    poses, couplings = reference.dynamic_routing(votes, bias, iterations)
    assert_close(routed.poses, poses, atol=1e-5)
    assert_close(routed.couplings, couplings, atol=1e-5)
    lengths = np.linalg.norm(poses, axis=-1)
    assert_close(routed.activations, lengths, atol=1e-5)

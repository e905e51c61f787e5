"""Dynamic routing: what it computes."""

import numpy as np
import pytest

from tests import reference
from tests.golden import assert_golden, load
from tests.gradients import value_and_gradients
from tests.tolerance import assert_close
from tfcaps.ops import quantize
from tfcaps.routing import DynamicRouting

ITERATIONS = [1, 2, 3, 5]


def route(routing, golden, bias=None):
    """Returns the result of a routing and the gradients of votes and bias."""
    routed = routing(golden["votes"], bias=bias)
    bias = np.zeros_like(golden["votes"][0, 0]) if bias is None else bias
    _, gradients = value_and_gradients(
        lambda votes, bias: routing(votes, bias=bias).poses,
        golden["votes"],
        bias,
        upstream=golden["upstream"],
    )
    return routed._asdict(), *gradients


@pytest.mark.parametrize("iterations", ITERATIONS)
def test_last_gradient_equals_the_public_implementation(iterations):
    golden, at = load("02_dynamic_routing"), f"iter{iterations}"
    routing = DynamicRouting(iterations)
    routed, of_votes, of_bias = route(routing, golden, golden["bias"])
    assert_golden(golden, f"{{}}_{at}", **routed)
    assert_golden(golden, f"grad_{{}}_last_only_{at}", 1e-4, votes=of_votes)
    assert_golden(golden, f"grad_{{}}_const_couplings_{at}", 1e-4, bias=of_bias)


@pytest.mark.parametrize(
    ("gradient", "name"), [("full", "through"), ("last", "last_only")]
)
@pytest.mark.parametrize("iterations", ITERATIONS)
def test_routing_without_bias_equals_the_public_one(iterations, gradient, name):
    golden, at = load("02_dynamic_routing_nobias"), f"iter{iterations}"
    routed, of_votes, _ = route(DynamicRouting(iterations, gradient), golden)
    assert_golden(golden, f"{{}}_{at}", **routed)
    assert_golden(golden, f"grad_{{}}_{name}_{at}", 1e-4, votes=of_votes)


@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("levels", [5, 11])
def test_quantized_routing_equals_the_public_one(levels, iterations):
    golden, at = load(f"03_quantized_routing_K{levels}"), f"iter{iterations}"
    routing = DynamicRouting(iterations, levels=levels)
    routed, of_votes, _ = route(routing, golden, golden["bias"])
    codes = np.asarray(quantize(routed["couplings"], levels))
    np.testing.assert_array_equal(codes, golden[f"bin_index_{at}"])
    np.testing.assert_array_equal(codes + 1, golden[f"dictionary_bin_{at}"])
    rounded = routed.pop("couplings")
    assert_golden(golden, f"{{}}_quantized_{at}", couplings=rounded)
    assert_golden(golden, f"{{}}_{at}", **routed)
    assert_golden(golden, f"grad_{{}}_{at}", 1e-4, votes=of_votes)


def test_coupling_on_an_edge_goes_down_and_leaves_the_bias_alone():
    golden = load("03_bin_edges")
    routed = DynamicRouting(1, levels=5)(
        golden["onedge_votes"], bias=golden["onedge_bias"]
    )
    assert_golden(golden, "onedge_{}", **routed._asdict())
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

"""Dynamic routing: what it computes."""

import numpy as np
import pytest

from tests import reference
from tests.golden import load, published_votes
from tests.gradients import value_and_gradients
from tests.tolerance import SUMS
from tfcaps.ops import quantize, squash
from tfcaps.routing import DynamicRouting

ITERATIONS = [1, 2, 3, 5]


def route_with_gradients(routing, golden, bias=None):
    """Returns what was routed and the gradients of votes and bias."""
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
        np.testing.assert_allclose(
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
    np.testing.assert_allclose(votes_gradient, expected, atol=1e-4)
    expected = golden[f"grad_bias_const_couplings_iter{iterations}"]
    np.testing.assert_allclose(bias_gradient, expected, atol=1e-4)


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
    np.testing.assert_allclose(votes_gradient, expected, atol=1e-4)


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
    np.testing.assert_allclose(gradient, expected, atol=1e-4)


@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("levels", [5, 11])
def test_couplings_before_rounding_equal_the_public_ones(levels, iterations):
    golden = load(f"03_quantized_routing_K{levels}")
    routed = DynamicRouting(iterations)(golden["votes"], bias=golden["bias"])
    exact = golden[f"couplings_unquantized_iter{iterations}"]
    np.testing.assert_allclose(routed.couplings, exact, atol=1e-5)
    # Their bins, by the file's own edges and centres.
    codes = np.asarray(quantize(routed.couplings, levels))
    edges = golden["bin_edges_f64"]
    assert np.all((edges[codes] < exact) & (exact <= edges[codes + 1]))
    np.testing.assert_allclose(
        golden["bin_centers"][codes],
        golden[f"couplings_quantized_iter{iterations}"],
        atol=SUMS,
    )


def test_coupling_on_an_edge_goes_down_and_leaves_the_bias_alone():
    golden = load("03_bin_edges")
    routed = DynamicRouting(1, levels=5)(
        golden["onedge_votes"], bias=golden["onedge_bias"]
    )
    for name in ("poses", "activations", "couplings"):
        expected = golden[f"onedge_{name}"]
        np.testing.assert_allclose(getattr(routed, name), expected, atol=1e-5)
    assert not np.any(routed.couplings)


@pytest.mark.parametrize(
    ("routing", "couplings", "poses"),
    [
        (
            DynamicRouting(1),
            [[1 / 3, 1 / 3, 1 / 3]] * 4,
            [[0.281360, -0.331696], [0.026790, -0.039514], [0.000147, 0.00013]],
        ),
        (
            DynamicRouting(3),
            [
                [0.785910, 0.115527, 0.098562],
                [0.867681, 0.048351, 0.083968],
                [0.426925, 0.336822, 0.236253],
                [0.066606, 0.513814, 0.419580],
            ],
            [
                [0.632875, -0.651170],
                [0.300518, -0.330648],
                [0.077426, -0.071826],
            ],
        ),
        (
            DynamicRouting(3, levels=11),
            [
                [0.8, 0.1, 0.1],
                [0.9, 0.0, 0.1],
                [0.4, 0.3, 0.2],
                [0.1, 0.5, 0.4],
            ],
            [
                [0.633893, -0.652075],
                [0.312151, -0.343696],
                [0.105005, -0.098794],
            ],
        ),
    ],
    ids=["one", "three", "quantized"],
)
def test_routing_has_the_worked_out_values(routing, couplings, poses):
    routed = routing(published_votes())
    # The poses were worked out with 1e-6 under the root of the squash.
    np.testing.assert_allclose(routed.couplings[0], couplings, atol=SUMS)
    np.testing.assert_allclose(routed.poses[0], poses, atol=1e-5)


def test_two_iterations_have_the_worked_out_values():
    routed = DynamicRouting(2)(published_votes())
    lengths = [0.767653, 0.197799, 0.022432]
    np.testing.assert_allclose(routed.activations[0], lengths, atol=1e-5)
    np.testing.assert_allclose(
        routed.couplings[0, 0], [0.506840, 0.249323, 0.243837], atol=SUMS
    )


@pytest.mark.parametrize("iterations", ITERATIONS)
def test_routing_equals_the_loops(iterations, rng):
    votes = rng.normal(size=(2, 5, 3, 4)).astype("float32")
    bias = rng.normal(size=(3, 4)).astype("float32")
    routed = DynamicRouting(iterations)(votes, bias=bias)
    poses, couplings = reference.dynamic_routing(votes, bias, iterations)
    np.testing.assert_allclose(routed.poses, poses, atol=1e-5)
    np.testing.assert_allclose(routed.couplings, couplings, atol=1e-5)
    lengths = np.linalg.norm(poses, axis=-1)
    np.testing.assert_allclose(routed.activations, lengths, atol=1e-5)


@pytest.mark.parametrize("levels", [None, 5])
def test_returned_couplings_are_those_that_made_the_poses(levels, rng):
    votes = rng.normal(size=(2, 5, 3, 4)).astype("float32")
    routed = DynamicRouting(levels=levels)(votes)
    poses = squash(np.einsum("bij,bijd->bjd", routed.couplings, votes))
    np.testing.assert_allclose(routed.poses, poses, atol=SUMS)

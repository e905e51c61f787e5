"""Dynamic routing with an orphan parent: what it computes."""

import numpy as np
import pytest

from tests import reference
from tests.tolerance import SUMS
from tfcaps.routing import DynamicRouting


@pytest.mark.parametrize("shape", [(2, 5, 3, 4), (1, 9, 1, 2)])
@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_leaky_routing_equals_the_loops(iterations, shape, rng):
    votes = rng.normal(size=shape).astype("float32")
    bias = rng.normal(size=shape[2:]).astype("float32")
    routed = DynamicRouting(iterations, leaky=True)(votes, bias=bias)
    poses, couplings = reference.dynamic_routing(
        votes, bias, iterations, leaky=True
    )
    np.testing.assert_allclose(routed.poses, poses, atol=1e-5)
    np.testing.assert_allclose(routed.couplings, couplings, atol=1e-5)


def test_a_lone_child_is_shared_with_the_orphan():
    # Half of (2, 0) is squashed to (0.5, 0): a logit of 1 against 0, then a
    # share of 1 / (1 + 1/e).
    votes = np.array([[[[2.0, 0.0]]]], "float32")
    half = DynamicRouting(1, leaky=True)(votes)
    np.testing.assert_allclose(half.couplings, [[[0.5]]], atol=SUMS)
    np.testing.assert_allclose(half.poses, [[[0.5, 0.0]]], atol=SUMS)
    routed = DynamicRouting(2, leaky=True)(votes)
    np.testing.assert_allclose(routed.couplings, [[[0.731059]]], atol=SUMS)
    np.testing.assert_allclose(routed.poses, [[[0.681304, 0.0]]], atol=SUMS)


def test_leaky_couplings_sum_to_less_than_one(rng):
    votes = rng.normal(size=(2, 5, 3, 4)).astype("float32")
    totals = np.sum(DynamicRouting(leaky=True)(votes).couplings, axis=-1)
    assert np.all(totals > 0) and np.all(totals < 1)
    assert np.ptp(totals) > 1e-2


def test_a_child_that_disagrees_with_all_parents_belongs_nowhere(rng):
    votes = 5 * np.ones((1, 6, 3, 4), "float32")
    votes[:, 0] = -5
    couplings = np.asarray(DynamicRouting(leaky=True)(votes).couplings)
    assert couplings[0, 0].sum() < 1e-3
    np.testing.assert_allclose(couplings[0, 1:].sum(-1), 1.0, atol=1e-3)

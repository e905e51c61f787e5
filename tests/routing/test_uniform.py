"""Uniform routing: what it computes."""

import numpy as np
import pytest

from tests.tolerance import assert_all_close, assert_close
from tfcaps.ops import squash
from tfcaps.routing import DynamicRouting, UniformRouting


@pytest.mark.parametrize("shape", [(2, 5, 3, 4), (1, 8, 2, 1)])
def test_routing_equals_one_iteration_by_agreement(shape, rng):
    votes = rng.normal(size=shape).astype("float32")
    bias = rng.normal(size=shape[2:]).astype("float32")
    routed = UniformRouting()(votes, bias=bias)
    np.testing.assert_allclose(routed.couplings, 1 / shape[2], rtol=1e-6)
    assert_all_close(routed, DynamicRouting(1)(votes, bias=bias))


def test_rounded_couplings_make_the_poses(rng):
    votes = rng.normal(size=(2, 5, 3, 4)).astype("float32")
    routed = UniformRouting(levels=5)(votes)
    np.testing.assert_allclose(routed.couplings, 0.25)
    poses = squash(0.25 * votes.sum(axis=1))
    assert_close(routed.poses, poses)

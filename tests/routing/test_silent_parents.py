"""Parents that were removed: silent ones still compete, absent ones do not."""

import numpy as np
import pytest

from tests.tolerance import assert_all_close, assert_close
from tfcaps.routing import (
    DynamicRouting,
    EMRouting,
    FactoredVotes,
    SelfAttentionRouting,
    UniformRouting,
)
from tfcaps.routing.factored_votes import Block

SETTINGS = {
    "dynamic": (DynamicRouting, {"sharpness": 3.0}),
    "dynamic-one": (DynamicRouting, {"iterations": 1}),
    "dynamic-leaky": (DynamicRouting, {"leaky": True, "orphan": 0.1}),
    "self_attention": (SelfAttentionRouting, {}),
    "uniform": (UniformRouting, {}),
}


@pytest.mark.parametrize("parents", [1, 3])
@pytest.mark.parametrize("name", SETTINGS)
def test_silent_parents_compete_as_those_of_zero_votes_do(name, parents, rng):
    make, settings = SETTINGS[name]
    votes = rng.normal(size=(2, 5, parents + 2, 4)).astype("float32")
    votes[:, :, parents:] = 0.0
    bias = rng.normal(size=(parents + 2, 4)).astype("float32")
    bias[parents:] = 0.0
    if make is SelfAttentionRouting:  # its bias is one of couplings
        bias = rng.normal(size=(5, parents + 2)).astype("float32")
    whole = make(**settings)(votes, bias=bias)
    kept = bias[..., :parents] if make is SelfAttentionRouting else bias[:-2]
    routing = make(**settings, silent_parents=2)
    left = routing(votes[:, :, :parents], bias=kept)
    expected = (
        whole.poses[:, :parents],
        whole.activations[:, :parents],
        whole.couplings[..., :parents],
    )
    assert_all_close(left, expected)
    assert not np.any(whole.poses[:, parents:])


def test_silent_parents_of_factored_votes(rng):
    poses = rng.normal(size=(2, 3, 2, 4)).astype("float32")
    maps = rng.normal(size=(2, 5, 4, 6)).astype("float32")
    maps[:, 3:] = 0.0
    whole = DynamicRouting()(FactoredVotes([Block(poses, maps)]))
    votes = FactoredVotes([Block(poses, maps[:, :3])])
    left = DynamicRouting(silent_parents=2)(votes)
    assert_close(left.couplings, whole.couplings[..., :3])
    assert_close(left.poses, whole.poses[:, :3])


@pytest.mark.parametrize("variant", ["paper", "code"])
def test_absent_parents_of_em_are_as_if_they_were_not_there(variant, rng):
    routing = EMRouting(3, 0.1, 0.01, variant=variant)
    votes = rng.normal(size=(2, 6, 4, 9)).astype("float32")
    beta_u, beta_a = rng.normal(size=(2, 4)).astype("float32")
    beta_a[[0, 2]] = routing.absent
    acts = rng.uniform(size=(2, 6)).astype("float32")
    whole = routing(votes, acts, beta_u=beta_u, beta_a=beta_a)
    left = routing(
        votes[:, :, 1::2], acts, beta_u=beta_u[1::2], beta_a=beta_a[1::2]
    )
    assert_close(whole.poses[:, 1::2], left.poses, atol=1e-5)
    assert_close(whole.couplings[..., 1::2], left.couplings)
    assert_close(whole.activations[:, 1::2], left.activations)
    assert not np.any(whole.couplings[..., ::2])
    assert not np.any(whole.activations[:, ::2])

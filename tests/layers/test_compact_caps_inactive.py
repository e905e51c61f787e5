"""CompactCaps without children of zero poses, or of zero activations."""

import numpy as np
import pytest

from tests.layers.test_compact_caps import ALL, FLAT, GRID, ROUTINGS
from tests.tolerance import SUMS, assert_all_close, rounding
from tfcaps.layers import ClassCaps, CompactCaps


@pytest.mark.parametrize("grid", [FLAT, GRID], ids=["flat", "spatial"])
@pytest.mark.parametrize(
    "routing", ["dynamic", "scaled_distance", "self_attention", "uniform"]
)
def test_children_of_zero_poses_may_share_one_matrix(grid, routing, rng):
    settings = {"routing": ROUTINGS[routing], "share": "all"}
    voting = [2, 0]
    children = rng.normal(size=(3, *grid, 4)).astype("float32")
    silent = np.delete(np.arange(grid[-1]), voting)
    children[..., silent, :] = 0.0
    whole = ClassCaps(3, 4, **settings)
    expected = whole(children, **ALL)
    taken = children[..., voting, :]
    compact = CompactCaps(
        3, 4, grid=grid, sources=[0, 1], origins=voting, **settings
    )
    compact.build(taken.shape)
    weights = whole.get_weights()
    if routing == "self_attention":  # its bias has a row for each child
        by_position = weights[1].reshape(-1, grid[-1], 3)
        weights[1] = by_position[:, voting].reshape(-1, 3)
    compact.set_weights(weights)
    assert_all_close(compact(taken, **ALL), expected)
    np.testing.assert_allclose(
        compact.voting_activations(taken),
        whole.voting_activations(children),
        atol=SUMS,
    )


def test_inactive_types_of_em_are_left_out(rng):
    settings = {"routing": "em", "share": "type", "matrix": True}
    settings["coordinates"] = True
    voting = [2, 0]
    poses = rng.normal(size=(3, *GRID, 4)).astype("float32")
    activations = rng.uniform(size=(3, *GRID)).astype("float32")
    activations[..., [1, 3]] = 0.0
    whole = ClassCaps(3, 4, **settings)
    whole.build(poses.shape)
    transformation, *others = whole.get_weights()
    transformation[[1, 3]] = 0.0
    whole.set_weights([transformation, *others])
    compact = CompactCaps(
        3, 4, grid=GRID, sources=[0, 1], origins=voting, **settings
    )
    compact.build((None, *GRID[:2], 2, 4))
    compact.set_weights([transformation[voting], *others])
    expected = whole(poses, activations, **ALL)
    outputs = compact(poses[..., voting, :], activations[..., voting], **ALL)
    # Means, variances and logits are sums over the children, of each iteration.
    sums = 3 * whole.routing.iterations
    atol = rounding(sums * np.prod(GRID), np.max(np.abs(expected[0])))
    assert_all_close(outputs, expected, atol=atol)

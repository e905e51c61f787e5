"""CompactCaps against ClassCaps of which the other children are silent.

They are silent as they vote zero, or as their poses or activations are zero.
"""

import numpy as np
import pytest

from tests.gradients import value_and_gradients, with_weights
from tests.networks import built
from tests.registry import ALL
from tests.tolerance import assert_all_close, assert_close, rounding
from tfcaps import routing as routings
from tfcaps.layers import ClassCaps, CompactCaps
from tfcaps.routing import (
    DynamicRouting,
    ScaledDistanceRouting,
    SelfAttentionRouting,
    UniformRouting,
)

ROUTINGS = {
    "dynamic": DynamicRouting(),
    "dynamic-full": DynamicRouting(gradient="full"),
    "dynamic-leaky": DynamicRouting(leaky=True),
    "dynamic-levels": DynamicRouting(levels=5),
    "scaled_distance": ScaledDistanceRouting(),
    "self_attention": SelfAttentionRouting(),
    "self_attention-levels": SelfAttentionRouting(levels=5),
    "uniform": UniformRouting(),
}

FLAT = (6,)
GRID = (2, 3, 4)
# Settings of both layers, the children, those that vote, and the types left.
FORMS = {
    "flat": ({}, FLAT, [4, 1, 2], None),
    "flat-all": ({}, FLAT, [4, 1, 2, 0, 3, 5], None),
    "spatial": ({}, GRID, [1, 5, 22, 15], None),
    "spatial-fewer_types": ({}, GRID, [1, 5, 22, 7], [1, 2, 3]),
    "share_type": ({"share": "type"}, GRID, [3, 1], None),
    "share_type-fewer_types": ({"share": "type"}, GRID, [3, 1], [1, 3]),
    "share_type-matrix": ({"share": "type", "matrix": True}, GRID, [2], None),
}


def make_pair(form, routing, rng):
    """Returns ClassCaps, CompactCaps, and the children of each."""
    settings, grid, origins, left = FORMS[form]
    settings = {"routing": ROUTINGS[routing], **settings}
    children = rng.normal(size=(3, *grid, 4)).astype("float32")
    taken = children
    sources = origins
    if left is not None:
        taken = children[..., left, :]
        number = np.arange(np.prod(grid)).reshape(grid)[..., left].ravel()
        known = left if "share" in settings else number.tolist()
        sources = [known.index(origin) for origin in origins]
    whole = built(ClassCaps(3, 4, **settings), children.shape, rng)
    transformation, bias = whole.get_weights()
    silent = np.delete(np.arange(len(transformation)), origins)
    transformation[silent] = 0.0
    whole.set_weights([transformation, bias])
    if whole.bias.shape[0] == np.prod(grid):  # it has a row for each child
        by_position = bias.reshape(-1, len(transformation), 3)
        bias = by_position[:, origins].reshape(-1, 3)
    settings.update(grid=grid, sources=sources, origins=origins)
    compact = CompactCaps(3, 4, **settings)
    built(compact, taken.shape, [transformation[origins], bias])
    return whole, compact, children, taken


def slopes_of(layer, poses):
    """Returns the gradients of the first weight and of the poses."""
    upstream = [np.cos(np.arange(36.0, dtype="float32")).reshape(3, 3, 4)]
    _, (weights, to_poses) = value_and_gradients(
        with_weights(layer, layer.trainable_variables),
        [weight.value for weight in layer.trainable_variables],
        poses,
        upstream=upstream,
    )
    return np.asarray(weights[0]), to_poses


# What is routed does not depend on the form of the children.
@pytest.mark.parametrize(
    ("form", "routing"),
    [
        (form, routing)
        for form in FORMS
        for routing in ROUTINGS
        if routing == "dynamic" or form in ("flat", "share_type-fewer_types")
    ],
)
def test_outputs_and_gradients_are_those_of_class_caps(form, routing, rng):
    whole, compact, children, taken = make_pair(form, routing, rng)
    expected = whole(children, **ALL)
    assert_all_close(compact(taken, **ALL), expected)
    assert_close(compact(taken), expected[0])
    if not routing.endswith("levels"):
        origins, left = FORMS[form][2:]
        to_matrices, to_children = slopes_of(whole, children)
        matrices, to_taken = slopes_of(compact, taken)
        assert np.all(np.any(matrices != 0, axis=(-1, -2)))
        # Sums over images, and in self-attention over pairs of children.
        pairs = len(children) * np.prod(children.shape[1:-1]) ** 2
        atol = rounding(pairs, max(np.max(np.abs(to_matrices)), 1.0))
        assert_close(matrices, to_matrices[origins], atol=atol)
        if left is not None:
            to_children = np.asarray(to_children)[..., left, :]
        assert_close(to_taken, to_children, atol=atol)


@pytest.mark.parametrize("form", FORMS)
def test_given_activations_are_those_of_the_children_that_vote(form, rng):
    whole, compact, children, taken = make_pair(form, "scaled_distance", rng)
    lengths = np.linalg.norm(children, axis=-1)
    _, _, origins, left = FORMS[form]
    kept = lengths if left is None else lengths[..., left]
    expected = whole(children, activations=0.1 * lengths, **ALL)
    assert_all_close(compact(taken, activations=0.1 * kept, **ALL), expected)
    assert np.max(np.abs(expected[0] - whole(children))) > 1e-3
    number = np.arange(lengths[0].size)
    types = lengths.shape[-1] if whole.share else number.size
    expected = np.isin(number % types, origins) * lengths.reshape(3, -1)
    for layer, poses, given in (
        (whole, children, lengths),
        (compact, taken, kept),
    ):
        assert_close(layer.voting_activations(poses), expected)
        active = layer.voting_activations(poses, 3.0 * given)
        assert_close(active, 3.0 * expected, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "silent"),
    [
        ({"routing": "dynamic"}, True),
        ({"routing": DynamicRouting(leaky=True)}, True),
        ({"routing": "uniform"}, True),
        ({"routing": "self_attention"}, True),
        ({"routing": "scaled_distance"}, True),
        ({"routing": ScaledDistanceRouting(distance_scale="sample")}, False),
        ({"routing": "em"}, False),
        ({"routing": "regularized"}, False),
        ({"matrix": True, "coordinates": True}, False),
    ],
)
def test_some_layers_hear_children_that_vote_zero(settings, silent, rng):
    layer = ClassCaps(3, 4, **settings)
    children = rng.normal(size=(2, *GRID, 4)).astype("float32")
    layer.build(children.shape)
    weights = layer.get_weights()
    weights[0][1] = 0.0
    weights[0][2, 1:] = 0.0  # it votes for the first parent alone
    layer.set_weights(weights)
    lengths = np.linalg.norm(children, axis=-1).reshape(2, -1)
    assert layer.can_be_silent == silent
    if silent:
        lengths[:, 1] = 0.0
    assert_close(layer.voting_activations(children), lengths)
    routing = routings.get(settings.get("routing", 3))
    for weight in routing.weights(children=7, parents=3, dim=5).values():
        assert weight.per_child == (weight.shape[0] == 7)

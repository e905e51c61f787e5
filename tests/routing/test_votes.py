"""Votes, held or kept as factors: what they do, and their gradients."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.backends import nightly_on_jax
from tests.gradients import value_and_gradients
from tests.registry import ROUTINGS, parametrize
from tests.tolerance import SUMS, assert_close
from tfcaps.layers import ConvCaps
from tfcaps.routing import execution
from tfcaps.routing.factored_votes import (
    Block,
    FactoredVotes,
    materialize_votes,
)
from tfcaps.routing.votes import Votes

# Blocks, positions and types of six children.
FORMS = {
    "nothing_shared": (1, 1, 6),
    "types_shared": (1, 3, 2),
    "all_shared": (1, 6, 1),
    "blocks": (2, 1, 3),
    "blocks_all_shared": (3, 2, 1),
}


def random_blocks(rng, form):
    count, positions, types = FORMS[form]
    return [
        Block(
            rng.normal(size=(2, positions, types, 3)).astype("float32"),
            rng.normal(size=(types, 3, 3, 4)).astype("float32"),
        )
        for _ in range(count)
    ]


def both(blocks):
    return FactoredVotes(blocks), Votes(
        materialize_votes(blocks), parents_first=True
    )


@nightly_on_jax
@pytest.mark.parametrize("form", FORMS)
@parametrize([case for case in ROUTINGS if "-" not in case.name])
def test_routing_and_its_gradients_are_the_same(case, form, rng):
    blocks = random_blocks(rng, form)
    _, activations, weights = case.random_arguments(rng)
    factors = [part for block in blocks for part in block]
    starts = range(0, len(factors), 2)
    weighting = rng.normal(size=(2, 3, 4)).astype("float32")

    def results(form):
        def route(*factors):
            pairs = [Block(*factors[k : k + 2]) for k in starts]
            routed = case.make()(both(pairs)[form], activations, **weights)
            return [*routed, routed.poses * weighting]

        zeros = [np.zeros(1, "float32")] * 3
        outputs, gradients = value_and_gradients(
            route, *factors, upstream=[*zeros, np.float32(1.0)]
        )
        return [*outputs, *gradients]

    for result, wanted in zip(results(0), results(1), strict=True):
        scale = max(np.max(np.abs(wanted)), 1.0)
        assert_close(result, wanted, atol=2e-5 * scale)


def test_distances_of_equal_votes_are_finite_and_gradients_stop(rng):
    blocks = random_blocks(rng, "nothing_shared")
    votes = both(blocks)[0]
    target = np.asarray(materialize_votes(blocks))[:, :, 0]
    distances = np.asarray(votes.distances(target, votes.lengths()))
    assert np.all(distances[:, 0] < 2e-3) and np.all(distances >= 0)
    _, gradients = value_and_gradients(
        lambda *factors: FactoredVotes([Block(*factors)]).stop_gradient().sum(),
        *blocks[0],
    )
    assert not any(map(np.any, gradients))


@nightly_on_jax
@pytest.mark.parametrize("padding", ["valid", "same"])
def test_windows_vote_alike_in_both_forms(padding, rng, monkeypatch):
    layer = ConvCaps(3, 6, (3, 2), (2, 1), padding=padding)
    maps = rng.normal(size=(2, 6, 5, 4, 5)).astype("float32")
    results = []
    for factored in (False, True):
        monkeypatch.setattr(
            execution, "stay_factored", lambda *_, f=factored: f
        )
        results.append(layer(maps, return_couplings=True))
    for result, wanted in zip(*results, strict=True):
        assert_close(keras.ops.convert_to_numpy(result), wanted, atol=1e-5)


# Method -> its definition, the method's own call, shape of the factors.
METHODS = {
    "weighted_squares": (
        lambda squares, factors: squares * ops.expand_dims(factors, -1),
        lambda votes, poses, factors: votes.weighted_squares(factors, poses),
        (2, 5, 3),
    ),
    "squared_distances": (
        lambda squares, factors: squares * ops.expand_dims(factors, 1),
        lambda votes, poses, factors: votes.squared_distances(poses, factors),
        (2, 3, 4),
    ),
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("spread", [1.0, 1e-3])
def test_gradients_of_close_votes_are_not_those_of_their_rounding(
    name, spread, rng
):
    definition, method, shape = METHODS[name]
    middle = rng.normal(size=(2, 1, 3, 4))
    votes = middle + spread * rng.normal(size=(2, 5, 3, 4))
    poses = middle[:, 0] + 0.3 * spread
    inputs = [x.astype("float32") for x in (votes, poses, rng.random(shape))]
    _, gradients = value_and_gradients(
        lambda votes, *others: method(Votes(votes), *others), *inputs
    )
    _, slopes = value_and_gradients(
        lambda votes, poses, factors: definition(
            ops.square(votes - ops.expand_dims(poses, 1)), factors
        ),
        *(x.astype("float64") for x in inputs),
    )
    for gradient, slope in zip(gradients, slopes, strict=True):
        scale = np.max(np.abs(slope))
        assert_close(gradient, slope, atol=SUMS * scale)

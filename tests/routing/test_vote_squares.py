"""Contractions of squared deviations, and their gradients."""

import numpy as np
import pytest
from keras import ops

from tests.gradients import value_and_gradients
from tests.tolerance import SUMS, assert_all_close, assert_close
from tfcaps.routing import Votes


def squares(votes, poses):
    """Returns `(û_ijd - v_jd)^2`, `[b, i, j, d]`."""
    return ops.square(votes - ops.expand_dims(poses, 1))


# Method -> its definition, the method's own call, shape of the factors.
METHODS = {
    "weighted_squares": (
        lambda votes, poses, couplings: ops.sum(
            squares(votes, poses) * ops.expand_dims(couplings, -1), axis=1
        ),
        lambda votes, poses, factors: votes.weighted_squares(factors, poses),
        (2, 5, 3),
    ),
    "squared_distances": (
        lambda votes, poses, scales: ops.sum(
            squares(votes, poses) * ops.expand_dims(scales, 1), axis=-1
        ),
        lambda votes, poses, factors: votes.squared_distances(poses, factors),
        (2, 3, 4),
    ),
}


@pytest.mark.parametrize("name", METHODS)
def test_values_and_gradients_are_those_of_the_definition(name, rng):
    definition, method, shape = METHODS[name]
    inputs = [
        rng.normal(size=(2, 5, 3, 4)),
        rng.normal(size=(2, 3, 4)),
        rng.random(shape),
    ]
    upstream = rng.normal(size=definition(*inputs).shape).astype("float32")
    wanted, slopes = value_and_gradients(
        lambda *x: ops.cast(definition(*x), "float32"),
        *inputs,
        upstream=upstream,
    )
    value, gradients = value_and_gradients(
        lambda votes, *others: ops.cast(
            method(Votes(votes), *others), "float32"
        ),
        *inputs,
        upstream=upstream,
    )
    assert_close(value, wanted, atol=1e-5)
    assert_all_close(gradients, slopes)


@pytest.mark.parametrize("name", METHODS)
def test_gradients_of_close_votes_are_not_those_of_their_rounding(name, rng):
    definition, method, shape = METHODS[name]
    spread = 1e-3
    middle = rng.normal(size=(2, 1, 3, 4))
    votes = middle + spread * rng.normal(size=(2, 5, 3, 4))
    poses = middle[:, 0] + 0.3 * spread
    inputs = [votes, poses, rng.random(shape)]
    inputs = [x.astype("float32") for x in inputs]
    _, gradients = value_and_gradients(
        lambda votes, *others: method(Votes(votes), *others), *inputs
    )
    _, slopes = value_and_gradients(
        definition, *(x.astype("float64") for x in inputs)
    )
    for gradient, slope in zip(gradients, slopes, strict=True):
        scale = np.max(np.abs(slope))
        assert_close(gradient, slope, atol=SUMS * scale)

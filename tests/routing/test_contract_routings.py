"""The contract of every public routing; first, that it does what it says."""

import keras
import numpy as np
import pytest

from tests import reference
from tests.backends import compiled, nightly_on_jax
from tests.gradients import value_and_gradients
from tests.registry import ROUTINGS, parametrize
from tests.tolerance import assert_all_close, assert_all_equal, assert_close
from tfcaps.routing import EMRouting

UNQUANTIZED = [case for case in ROUTINGS if case.make().levels is None]
WITH_GRADIENT = [
    case for case in ROUTINGS if "gradient" in case.make().get_config()
]
# "last" and "full" are settings of one class, so one row of it is enough.
WITH_MODES = {
    case.public_class: case for case in WITH_GRADIENT if case in UNQUANTIZED
}.values()


def with_iterations(case, *counts):
    """Returns settings of so many iterations, or one where there is no loop."""
    known = "iterations" in case.make().get_config()
    return [{"iterations": n} for n in counts] if known else [{}]


def ramp(*shape):
    # Unequal weights in the sum: the plain sum of couplings is a constant.
    size = np.prod(shape)
    return np.reshape(np.arange(size) / size, shape).astype("float32")


@pytest.mark.parametrize("sizes", [(2, 6, 3, 4), (1, 4, 1, 2)], ids=str)
@parametrize(ROUTINGS)
def test_routing_is_what_the_reference_computes(case, sizes, rng):
    votes, activations, weights = case.random_arguments(rng, *sizes)
    activations[:, 0] = 0.0
    if case.public_class is EMRouting:
        weights["bias"] = rng.normal(size=sizes[2:]).astype("float32")
    for setting in with_iterations(case, 1, 2, 4):
        routing = case.make(**setting)
        routed = routing(votes, activations, **weights)
        expected = reference.route(routing, votes, activations, **weights)
        assert_all_close(routed, expected, atol=2e-5)


@nightly_on_jax
@parametrize(ROUTINGS)
def test_weights_that_are_left_out_make_no_difference_at_their_start(case, rng):
    votes, activations, weights = case.random_arguments(rng)
    declared = case.make().weights(6, 3, 4)
    start = {
        name: keras.initializers.get(weight.initializer)(weight.shape)
        for name, weight in declared.items()
        if name != "bias"
    }
    bare = case.make()(votes, activations)
    assert_all_equal(case.make()(votes, activations, **start), bare)
    # Each weight counts once it has moved.
    for name, value in weights.items():
        moved = case.make()(votes, activations, **{name: value})
        assert any(
            np.max(np.abs(tensor - wanted)) > 1e-5
            for tensor, wanted in zip(moved, bare, strict=True)
        )
    if case.make().explicit_activations:
        assert_all_equal(
            case.make()(votes), case.make()(votes, np.ones((2, 6), "float32"))
        )


@nightly_on_jax
@parametrize(ROUTINGS)
def test_routing_is_in_float32_unless_votes_are_wider(case, rng):
    arguments = case.random_arguments(rng)

    def routed(dtype, arguments):
        votes, activations, weights = keras.tree.map_structure(
            lambda x: keras.ops.cast(x, dtype), arguments
        )
        return (votes, activations, weights), case.make()(
            votes, activations, **weights
        )

    for dtype in ("float16", "bfloat16", "float64"):
        given, actual = routed(dtype, arguments)
        _, expected = routed("float32", given)
        is_wide = dtype == "float64"
        for tensor, wanted in zip(actual, expected, strict=True):
            assert tensor.dtype.name == (dtype if is_wide else "float32")
            tolerance = 1e-5 if is_wide else 0.0
            assert_close(tensor, wanted, atol=tolerance, rtol=0.0)


def routed_with_gradients(routing, votes, activations, weights):
    """Returns poses, activations, couplings and the gradients of all three."""
    batch, children, parents, dim = votes.shape
    routed, gradients = value_and_gradients(
        lambda votes, activations, weights: list(
            routing(votes, activations, **weights)
        ),
        votes,
        activations,
        weights,
        upstream=[
            ramp(batch, parents, dim),
            ramp(batch, parents),
            ramp(batch, children, parents),
        ],
    )
    return [*routed, *keras.tree.flatten(gradients)]


@nightly_on_jax
@parametrize(WITH_MODES)
def test_gradient_modes_share_outputs(case, rng):
    arguments = case.random_arguments(rng)
    for setting in with_iterations(case, 1, 3):
        last, full = (
            routed_with_gradients(
                case.make(gradient=mode, **setting), *arguments
            )
            for mode in ("last", "full")
        )
        assert_all_close(full[:3], last[:3])
        if setting.get("iterations") == 1:
            assert_all_close(full[3:], last[3:], atol=1e-4)
        else:
            assert np.max(np.abs(full[3] - last[3])) > 1e-2


@nightly_on_jax
@parametrize(ROUTINGS)
def test_couplings_that_are_asked_for_carry_a_gradient(case, rng):
    """In "last" too, where they are constants of the poses, but for EM.

    Rounded ones carry none.
    """
    arguments = case.random_arguments(rng)
    setting = {"gradient": "last"} if case in WITH_GRADIENT else {}
    routing = case.make(**setting)
    _, gradients = value_and_gradients(
        lambda votes, activations, weights: (
            routing(votes, activations, **weights).couplings * ramp(2, 6, 3)
        ),
        *arguments,
    )
    assert np.all(np.isfinite(gradients[0]))
    if routing.levels is not None:
        assert not any(map(np.any, keras.tree.flatten(gradients)))
    elif setting:
        is_constant = isinstance(routing, EMRouting)
        assert np.any(gradients[0]) != is_constant


@parametrize(ROUTINGS, slow=[r.name for r in ROUTINGS if "-" in r.name])
def test_eager_graph_and_compiled_routing_agree(case, rng):
    arguments = case.random_arguments(rng)
    routing = case.make(**with_iterations(case, 2)[0])

    def results(*arguments):
        return routed_with_gradients(routing, *arguments)

    eager = results(*arguments)
    # XLA makes the same graph of the function, and takes long.
    for xla in (True,) if "-" in case.name else (True, False):
        outputs = compiled(results, xla=xla)(*arguments)
        assert_all_close(outputs, eager, atol=1e-4, rtol=1e-4)

"""The contract of every public routing."""

import keras
import numpy as np
import pytest

from tests.backends import compiled, nightly_on_jax
from tests.gradients import value_and_gradients
from tests.registry import ROUTINGS, parametrize
from tests.tolerance import assert_all_close, assert_all_equal, assert_close
from tfcaps.ops import dequantize, quantize
from tfcaps.routing import EMRouting

UNQUANTIZED = [case for case in ROUTINGS if case.make().levels is None]
QUANTIZED = [case for case in ROUTINGS if case.make().levels is not None]
WITH_GRADIENT = [
    case for case in ROUTINGS if "gradient" in case.make().get_config()
]
# "last" and "full" are settings of one class, so one row of it is enough.
WITH_MODES = {
    case.public_class: case for case in WITH_GRADIENT if case in UNQUANTIZED
}.values()


def with_iterations(case, count):
    """Returns the setting, or none where there is no loop."""
    known = "iterations" in case.make().get_config()
    return {"iterations": count} if known else {}


@parametrize(ROUTINGS)
def test_activations_are_lengths_unless_a_routing_makes_its_own(case, rng):
    votes, activations, weights = case.random_arguments(rng)
    routing = case.make()
    routed = routing(votes, activations, **weights)
    lengths = np.linalg.norm(routed.poses, axis=-1)
    assert np.all(routed.activations >= 0) and np.all(routed.activations <= 1)
    if not routing.explicit_activations:
        assert_close(routed.activations, lengths)
    else:
        assert np.max(np.abs(routed.activations - lengths)) > 1e-2


@nightly_on_jax
@parametrize(ROUTINGS)
def test_permuting_children_permutes_couplings(case, rng):
    votes, activations, weights = case.random_arguments(rng)
    # Children of one type may change places.
    types = getattr(case.make(), "types", 1)
    places = rng.permutation(votes.shape[1] // types)
    order = (places[:, None] * types + np.arange(types)).ravel()
    permuted_weights = {
        name: value[order] if value.shape[:1] == order.shape else value
        for name, value in weights.items()
    }
    routed = case.make()(votes, activations, **weights)
    permuted = case.make()(
        votes[:, order], activations[:, order], **permuted_weights
    )
    assert_all_close(permuted[:2], routed[:2])
    assert_close(permuted.couplings, np.asarray(routed.couplings)[:, order])


@nightly_on_jax
@parametrize(UNQUANTIZED)
def test_samples_are_routed_alone(case, rng):
    votes, activations, weights = case.random_arguments(rng)
    together = case.make()(votes, activations, **weights)
    for row in range(2):
        alone = case.make()(votes[row, None], activations[row, None], **weights)
        assert_all_close([x[0] for x in alone], [x[row] for x in together])


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


@pytest.mark.parametrize("mode", ["midtread", "midrise"])
@parametrize(UNQUANTIZED)
def test_levels_round_the_last_couplings_only(case, mode, rng):
    votes, activations, weights = case.random_arguments(rng)
    exact = case.make()(votes, activations, **weights).couplings
    routing = case.make(levels=5, levels_mode=mode)
    rounded = routing(votes, activations, **weights).couplings
    codes = quantize(exact, 5, mode=mode)
    np.testing.assert_array_equal(rounded, dequantize(codes, 5, mode=mode))


@parametrize(QUANTIZED)
def test_rounded_couplings_carry_no_gradient(case, rng):
    arguments = case.random_arguments(rng)
    routing = case.make()
    _, gradients = value_and_gradients(
        lambda votes, activations, weights: (
            routing(votes, activations, **weights).couplings
        ),
        *arguments,
    )
    for gradient in keras.tree.flatten(gradients):
        assert not np.any(gradient)


@nightly_on_jax
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@parametrize(ROUTINGS)
def test_routing_is_in_float32_unless_votes_are_wider(case, dtype, rng):
    def routed(dtype, arguments):
        votes, activations, weights = keras.tree.map_structure(
            lambda x: keras.ops.cast(x, dtype), arguments
        )
        return (votes, activations, weights), case.make()(
            votes, activations, **weights
        )

    given, actual = routed(dtype, case.random_arguments(rng))
    _, expected = routed("float32", given)
    is_wide = dtype == "float64"
    for tensor, wanted in zip(actual, expected, strict=True):
        assert tensor.dtype.name == (dtype if is_wide else "float32")
        assert_close(tensor, wanted, atol=1e-5 if is_wide else 0.0, rtol=0.0)


def ramp(*shape):
    # Unequal weights in the sum: the plain sum of couplings is a constant.
    size = np.prod(shape)
    return np.reshape(np.arange(size) / size, shape).astype("float32")


def routed_with_gradients(routing, votes, activations, weights):
    """Returns poses, activations, couplings and the gradients of all three."""
    batch, children, parents, dim = votes.shape

    def route(votes, activations, weights):
        return list(routing(votes, activations, **weights))

    routed, gradients = value_and_gradients(
        route,
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
@pytest.mark.parametrize("iterations", [1, 3])
@parametrize(WITH_MODES)
def test_gradient_modes_share_outputs(case, iterations, rng):
    arguments = case.random_arguments(rng)
    setting = with_iterations(case, iterations)
    last, full = (
        routed_with_gradients(case.make(gradient=mode, **setting), *arguments)
        for mode in ("last", "full")
    )
    assert_all_close(full[:3], last[:3])
    if setting and iterations == 1:
        assert_all_close(full[3:], last[3:], atol=1e-4)
    else:
        assert np.max(np.abs(full[3] - last[3])) > 1e-2


@nightly_on_jax
@parametrize(WITH_GRADIENT)
def test_couplings_that_are_asked_for_carry_a_gradient(case, rng):
    """In "last" too, where they are constants of the poses, but for EM."""
    arguments = case.random_arguments(rng)
    routing = case.make(gradient="last")
    _, gradients = value_and_gradients(
        lambda votes, activations, weights: (
            routing(votes, activations, **weights).couplings * ramp(2, 6, 3)
        ),
        *arguments,
    )
    is_constant = (
        isinstance(routing, EMRouting)
        or routing.levels is not None
        or getattr(routing, "iterations", 2) == 1
    )
    assert np.all(np.isfinite(gradients[0]))
    assert np.any(gradients[0]) != is_constant


@parametrize(ROUTINGS)
def test_eager_graph_and_compiled_routing_agree(case, rng):
    arguments = case.random_arguments(rng)
    routing = case.make(**with_iterations(case, 2))

    def results(*arguments):
        return routed_with_gradients(routing, *arguments)

    eager = results(*arguments)
    # XLA makes the same graph of the function, and takes long.
    for xla in (True,) if "-" in case.name else (True, False):
        outputs = compiled(results, xla=xla)(*arguments)
        assert_all_close(outputs, eager, atol=1e-4, rtol=1e-4)

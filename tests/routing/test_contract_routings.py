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
SHARING = [case for case in UNQUANTIZED if case.shares]
ITERATIVE = [
    case for case in UNQUANTIZED if "iterations" in case.make().get_config()
]
WITH_GRADIENT = [
    case for case in ROUTINGS if "gradient" in case.make().get_config()
]
# "last" and "full" are settings of one class, so one row of it is enough.
WITH_MODES = {
    case.public_class: case for case in WITH_GRADIENT if case in UNQUANTIZED
}.values()


def settings(case, counts):
    """Returns the counts of iterations to try, or no setting at all."""
    if "iterations" not in case.make().get_config():
        return [{}]
    return [{"iterations": count} for count in counts]


@parametrize(SHARING)
def test_couplings_sum_to_one_over_parents(case, rng):
    votes, activations, weights = case.random_arguments(rng)
    couplings = np.asarray(case.make()(votes, activations, **weights).couplings)
    assert couplings.shape == (2, 6, 3)
    assert np.all(couplings >= 0)
    assert_close(couplings.sum(axis=-1), 1.0)


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


@parametrize(ITERATIVE)
def test_one_iteration_couples_every_child_equally(case, rng):
    votes, activations, weights = case.random_arguments(rng)
    routed = case.make(iterations=1)(votes, activations, **weights)
    uniform = 1 / 3 if case.shares else routed.couplings[0, 0, 0]
    assert_close(routed.couplings, uniform, atol=1e-7)


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


@parametrize(UNQUANTIZED)
def test_equal_votes_keep_couplings_uniform(case, rng):
    votes, activations, _ = case.random_arguments(rng)
    equal = np.broadcast_to(votes[:, :, :1], votes.shape)
    couplings = case.make()(equal, activations).couplings
    uniform = 1 / 3 if case.shares else couplings[..., :1]
    assert_close(couplings, np.broadcast_to(uniform, couplings.shape))


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
    declared = case.make().weights(6, 3, case.dim)
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
@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
@parametrize(WITH_MODES)
def test_gradient_modes_share_outputs(case, iterations, rng):
    arguments = case.random_arguments(rng)
    (setting,) = settings(case, [iterations])
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


# Draws of what is kept of votes.
PRUNED = {
    "zero": lambda votes, rng: 0.0 * votes,
    "components": lambda votes, rng: votes * (rng.random(votes.shape) > 0.99),
    "votes": lambda votes, rng: (
        votes * (rng.random(votes.shape[:3]) > 0.99)[..., None]
    ),
}


@nightly_on_jax
@pytest.mark.parametrize("weightless", [True, False], ids=["bare", "weights"])
@pytest.mark.parametrize("pruned", PRUNED)
@parametrize(ROUTINGS)
def test_pruned_votes_give_finite_values_and_gradients(
    case, pruned, weightless, rng
):
    votes, activations, weights = case.random_arguments(rng, children=40)
    results = routed_with_gradients(
        case.make(),
        PRUNED[pruned](votes, rng).astype("float32"),
        activations,
        {} if weightless else weights,
    )
    for result in results:
        assert np.all(np.isfinite(result))


@parametrize(ROUTINGS)
def test_eager_graph_and_compiled_routing_agree(case, rng):
    arguments = case.random_arguments(rng)
    counts = settings(case, [1, 3])

    # All settings in one graph: compiling costs more than running.
    def results(*arguments):
        return [
            routed_with_gradients(case.make(**setting), *arguments)
            for setting in counts
        ]

    eager = results(*arguments)
    for xla in (False, True):
        graph = compiled(results, xla=xla)(*arguments)
        for setting, wanted, got in zip(counts, eager, graph, strict=True):
            for tensor, twin in zip(wanted, got, strict=True):
                assert_close(
                    twin, tensor, atol=1e-4, rtol=1e-4, err_msg=str(setting)
                )

"""What holds for every public routing."""

import numpy as np
import pytest
import tensorflow as tf

from tests.gradients import value_and_gradients
from tests.registry import ROUTINGS, parametrize

UNQUANTIZED = [case for case in ROUTINGS if case.make().levels is None]
ITERATIVE = [
    case for case in UNQUANTIZED if "iterations" in case.make().get_config()
]
# "last" and "full" are settings of one class, so one row of it is enough.
WITH_MODES = {
    case.public_class: case
    for case in UNQUANTIZED
    if "gradient" in case.make().get_config()
}.values()


@parametrize(UNQUANTIZED)
def test_couplings_sum_to_one_over_parents(case, rng):
    couplings = np.asarray(case.make()(*case.random_arguments(rng)).couplings)
    assert couplings.shape == (2, 6, 3)
    assert np.all(couplings >= 0)
    np.testing.assert_allclose(couplings.sum(axis=-1), 1.0, atol=1e-6)


@parametrize(ITERATIVE)
def test_one_iteration_couples_every_child_equally(case, rng):
    routed = case.make(iterations=1)(*case.random_arguments(rng))
    np.testing.assert_allclose(routed.couplings, 1 / 3, atol=1e-7)


@parametrize(ROUTINGS)
def test_permuting_children_permutes_couplings(case, rng):
    votes, activations, bias = case.random_arguments(rng)
    order = rng.permutation(votes.shape[1])
    routed = case.make()(votes, activations, bias)
    permuted = case.make()(votes[:, order], activations[:, order], bias)
    couplings = np.asarray(routed.couplings)
    np.testing.assert_allclose(
        permuted.couplings, couplings[:, order], atol=1e-6
    )
    np.testing.assert_allclose(permuted.poses, routed.poses, atol=1e-6)


@parametrize(UNQUANTIZED)
def test_equal_votes_keep_couplings_uniform(case, rng):
    votes, activations, _ = case.random_arguments(rng)
    equal = np.broadcast_to(votes[:, :1, :1], votes.shape)
    couplings = case.make()(equal, activations).couplings
    np.testing.assert_allclose(couplings, 1 / 3, atol=1e-6)


@parametrize(UNQUANTIZED)
def test_samples_are_routed_alone(case, rng):
    votes, activations, bias = case.random_arguments(rng)
    together = case.make()(votes, activations, bias)
    for row in range(2):
        alone = case.make()(votes[row, None], activations[row, None], bias)
        for tensor, wanted in zip(alone, together, strict=True):
            np.testing.assert_allclose(tensor[0], wanted[row], atol=1e-6)


def ramp(tensor):
    # Unequal weights in the sum: the plain sum of couplings is a constant.
    size = np.prod(tensor.shape)
    return np.reshape(np.arange(size) / size, tensor.shape).astype("float32")


def routed_with_gradients(routing, arguments):
    """Returns poses, activations, couplings and the gradients of all three."""

    def weighted(*arguments):
        return [tensor * ramp(tensor) for tensor in routing(*arguments)]

    _, gradients = value_and_gradients(weighted, *arguments)
    return [*routing(*arguments), *gradients]


@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
@parametrize(WITH_MODES)
def test_gradient_modes_share_outputs(case, iterations, rng):
    arguments = case.random_arguments(rng)
    last, full = (
        routed_with_gradients(
            case.make(iterations=iterations, gradient=mode), arguments
        )
        for mode in ("last", "full")
    )
    for tensor, wanted in zip(full[:3], last[:3], strict=True):
        np.testing.assert_allclose(tensor, wanted, atol=1e-6)
    if iterations == 1:
        np.testing.assert_allclose(full[3], last[3], atol=1e-4)
    else:
        assert np.max(np.abs(full[3] - last[3])) > 1e-2


@parametrize(ROUTINGS)
def test_eager_graph_and_compiled_routing_agree(case, rng):
    arguments = case.random_arguments(rng)
    settings = [{}]
    if "iterations" in case.make().get_config():
        settings = [{"iterations": times} for times in (1, 2, 3, 5)]

    # All settings in one graph: compiling costs more than running.
    def results(*arguments):
        return [
            routed_with_gradients(case.make(**setting), arguments)
            for setting in settings
        ]

    eager = results(*arguments)
    for jit_compile in (False, True):
        compiled = tf.function(results, jit_compile=jit_compile)(*arguments)
        for setting, wanted, got in zip(settings, eager, compiled, strict=True):
            for tensor, twin in zip(wanted, got, strict=True):
                np.testing.assert_allclose(
                    twin, tensor, atol=1e-4, rtol=1e-4, err_msg=str(setting)
                )

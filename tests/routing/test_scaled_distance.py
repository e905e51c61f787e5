"""Scaled-distance-agreement routing: what it computes."""

import keras
import numpy as np
import pytest

from tests import reference
from tests.golden import assert_golden, load
from tests.gradients import value_and_gradients
from tests.networks import of_capsules
from tests.tolerance import assert_close
from tfcaps.layers import ClassCaps
from tfcaps.losses import MarginLoss
from tfcaps.ops import length
from tfcaps.rem.evaluation.evaluate import t_score
from tfcaps.routing import ScaledDistanceRouting

SCALES = ["capsule", "sample", "batch"]
ITERATIONS = [1, 2, 3, 5]


NAMES = ("votes", "input_activations", "bias")


def arguments_of(golden):
    return [golden[name] for name in NAMES]


@pytest.mark.parametrize("iterations", ITERATIONS)
def test_batch_scale_equals_the_public_implementation(iterations):
    golden, at = load("04_sda_routing"), f"iter{iterations}"
    routing = ScaledDistanceRouting(iterations, "batch", "last")
    routed = routing(*arguments_of(golden))
    assert_golden(golden, f"{{}}_{at}", **routed._asdict())
    _, gradients = value_and_gradients(
        lambda *arguments: routing(*arguments).poses,
        *arguments_of(golden),
        upstream=golden["upstream"],
    )
    gradients = dict(zip(NAMES, gradients, strict=True))
    assert_golden(golden, f"grad_{{}}_{at}", 1e-4, **gradients)


@pytest.mark.parametrize("iterations", ITERATIONS)
def test_sample_scale_equals_the_public_one_with_a_batch_of_one(iterations):
    golden = load("04_sda_routing")
    expected = golden[f"poses_batch_of_one_iter{iterations}"]
    votes, activations, bias = arguments_of(golden)
    routed = ScaledDistanceRouting(iterations, "sample")(
        votes, activations, bias
    )
    assert_close(routed.poses, expected, atol=1e-5)
    routing = ScaledDistanceRouting(iterations, "batch")
    for row in range(len(votes)):
        alone = routing(votes[row, None], activations[row, None], bias)
        assert_close(alone.poses[0], expected[row], atol=1e-5)


def test_quantized_routing_equals_the_public_one():
    golden = load("04_sda_routing")
    routed = ScaledDistanceRouting(3, "batch", levels=11)(*arguments_of(golden))
    assert_golden(golden, "quantized_K11_{}_iter3", **routed._asdict())


def routed_layer(iterations, poses, transformation, bias):
    votes = keras.ops.einsum("bik,ijkd->bijd", poses, transformation)
    routing = ScaledDistanceRouting(iterations, "batch", gradient="full")
    return routing(votes, length(poses), bias)


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_layer_with_full_gradient_equals_the_public_one(iterations):
    golden, at = load("04_sda_gamma_repo"), f"iter{iterations}"
    arguments = golden["input_poses"], golden["weights"], golden["bias"]
    couplings = routed_layer(iterations, *arguments).couplings
    poses, gradients = value_and_gradients(
        lambda *arguments: routed_layer(iterations, *arguments).poses,
        *arguments,
        upstream=golden["upstream"],
    )
    assert_golden(golden, f"{{}}_{at}", poses=poses, couplings=couplings)
    gradients = dict(zip(("input", "weights", "bias"), gradients, strict=True))
    assert_golden(golden, f"grad_{{}}_through_{at}", 2e-4, **gradients)


def test_scores_equal_the_public_ones():
    golden = load("04_sda_gamma_repo")
    routed = routed_layer(
        3, golden["input_poses"], golden["weights"], golden["bias"]
    )
    score = np.mean(t_score(routed.couplings))
    assert_close(score, golden["t_score_iter3"], atol=1e-5)
    # How much the most variable parent's length varies over the batch.
    score = np.max(np.std(routed.activations, axis=0))
    assert_close(score, golden["d_score_iter3"], atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 5, 3, 4), (3, 8, 2, 2)])
@pytest.mark.parametrize("iterations", ITERATIONS)
@pytest.mark.parametrize("scale", SCALES)
def test_routing_equals_the_loops(scale, iterations, shape, rng):
    votes = rng.normal(size=shape).astype("float32")
    activations = rng.uniform(0, 3, size=shape[:2]).astype("float32")
    bias = rng.normal(size=shape[2:]).astype("float32")
    routed = ScaledDistanceRouting(iterations, scale)(votes, activations, bias)
    poses, couplings = reference.scaled_distance_routing(
        votes, activations, bias, iterations, scale
    )
    assert_close(routed.poses, poses, atol=1e-5)
    assert_close(routed.couplings, couplings, atol=1e-5)


def test_a_child_of_length_zero_has_no_influence(rng):
    votes = rng.normal(size=(2, 5, 3, 4)).astype("float32")
    activations = rng.uniform(0.5, 1, size=(2, 5)).astype("float32")
    activations[:, 0] = 0
    routed = ScaledDistanceRouting()(votes, activations)
    fewer = ScaledDistanceRouting()(votes[:, 1:], activations[:, 1:])
    assert_close(routed.poses, fewer.poses)


# Keras says so for one parent, in eager calls.
@pytest.mark.filterwarnings("ignore:You are using a softmax over axis")
def test_a_lone_parent_gets_everything(rng):
    votes = rng.normal(size=(2, 5, 1, 4)).astype("float32")
    for scale in SCALES:
        couplings = ScaledDistanceRouting(5, scale)(votes).couplings
        assert_close(couplings, 1.0, atol=1e-7)


@pytest.mark.slow
def test_a_layer_learns_to_tell_classes_apart():
    """With constant couplings the loss stays at 0.07, and grows in between."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    children = rng.normal(size=(60, 12, 4))
    children *= 0.5 / np.linalg.norm(children, axis=-1, keepdims=True)
    children += 0.3 * rng.normal(size=(3, 12, 4))[labels]
    model = of_capsules(ClassCaps(3, 4, routing="scaled_distance"), 12, 4)
    model.compile(keras.optimizers.Adam(0.02), MarginLoss())
    history = model.fit(children, labels, 60, epochs=30, verbose=0)
    assert history.history["loss"][-1] < 0.04

"""ClassCaps, Length, and weights that are drawn at random."""

import itertools

import keras
import numpy as np
import pytest

import tfcaps
from tests import reference
from tests.golden import assert_golden, load
from tests.gradients import value_and_gradients
from tests.networks import SMALL_NETWORKS, built
from tests.tolerance import assert_close
from tfcaps.layers import ClassCaps, ConvCaps, Length, PrimaryMatrixCaps
from tfcaps.routing import EMRouting


@pytest.mark.parametrize(
    "shape", [(24, 4), (2, 3, 4, 4)], ids=["flat", "spatial"]
)
def test_class_caps_equals_the_public_implementation(shape):
    golden = load("06_dense_capsules")
    children = golden["input_poses"].reshape(-1, *shape)
    weights = [golden["weights"], golden["bias"]]
    layer = built(ClassCaps(6, 8), children.shape, weights)
    poses, couplings = layer(children, return_couplings=True)
    assert_golden(golden, "{}_iter3", poses=poses, couplings=couplings)
    assert_golden(golden, "{}_iter3", poses=layer(children))
    assert_golden(golden, "{}_iter3", activations=Length()(poses))


@pytest.mark.parametrize("iterations", [1, 3])
def test_gradients_of_class_caps_equal_the_public_implementation(iterations):
    golden, at = load("02_dense_dynamic_autograd"), f"iter{iterations}"
    weights = [golden["weights"], golden["bias"]]
    routing = tfcaps.routing.DynamicRouting(iterations, gradient="full")
    layer = built(ClassCaps(6, 8, routing), (None, 16, 4), weights)

    def poses_of(children, weights):
        others = layer.non_trainable_variables
        return layer.stateless_call(weights, others, children)[0]

    poses, (children, (matrices, bias)) = value_and_gradients(
        poses_of, golden["input_poses"], weights, upstream=golden["upstream"]
    )
    _, couplings = layer(golden["input_poses"], return_couplings=True)
    assert_golden(golden, f"{{}}_{at}", poses=poses, couplings=couplings)
    gradients = {"input": children, "weights": matrices, "bias": bias}
    assert_golden(golden, f"grad_{{}}_through_{at}", 1e-4, **gradients)


@pytest.mark.parametrize("share", [None, "type", "all"], ids=str)
def test_class_caps_equals_the_loops(share, rng):
    children = rng.normal(size=(2, 2, 3, 2, 4)).astype("float32")
    matrices = {None: (12,), "type": (2,), "all": ()}[share]
    transformation = rng.normal(size=(*matrices, 6, 4, 8)).astype("float32")
    bias = rng.normal(size=(6, 8)).astype("float32")
    layer = ClassCaps(6, 8, routing=2, share=share)
    built(layer, children.shape, [transformation, bias])
    poses, couplings = layer(children, return_couplings=True)
    expected = reference.dynamic_routing(
        reference.votes(children, transformation, share), bias, iterations=2
    )
    assert_close(poses, expected[0], atol=1e-5)
    assert_close(couplings, expected[1], atol=1e-5)


def test_initial_weights_are_the_published_ones():
    layer = ClassCaps(10, 16)
    layer.build((None, 100, 8))
    transformation = layer.transformation.numpy()
    assert np.std(transformation) == pytest.approx(0.1, rel=0.02)
    # Not truncated at two standard deviations.
    assert np.max(np.abs(transformation)) > 0.3
    np.testing.assert_allclose(layer.bias, 0.1)


def test_transformation_can_be_initialized_and_regularized():
    layer = ClassCaps(
        2,
        3,
        transformation_initializer="ones",
        bias_initializer="zeros",
        transformation_regularizer=keras.regularizers.L2(0.5),
    )
    layer(np.ones((1, 4, 5), "float32"))
    assert float(layer.losses[0]) == pytest.approx(0.5 * 4 * 2 * 5 * 3)
    assert not np.any(layer.bias)


@pytest.mark.parametrize("shape", [(2, 3), (2, 2, 3, 4)], ids=str)
def test_length_is_the_norm_over_the_last_axis(shape, rng):
    poses = rng.normal(size=(5, *shape)).astype("float32")
    expected = np.linalg.norm(poses, axis=-1)
    assert_close(Length()(poses), expected)


def test_without_a_bias_it_is_none():
    for layer, children in (
        (ClassCaps(3, 4, use_bias=False), (2, 5, 4)),
        (ConvCaps(3, 4, 3, use_bias=False), (2, 3, 3, 2, 4)),
        (ClassCaps(3, 4, routing="em"), (2, 5, 4)),
    ):
        layer.build(children)
        assert layer.bias is None


def weights_of(model, name, *layers):
    return [getattr(model.get_layer(layer), name) for layer in layers]


def test_no_weights_that_are_drawn_are_the_same_numbers():
    em = SMALL_NETWORKS["em_capsnet"](
        conv_types=(8, 8), routing=EMRouting(beta_a_initializer="random_normal")
    )
    layers = ("conv_caps1", "conv_caps2", "class_caps")
    deepcaps = SMALL_NETWORKS["deepcaps"](variant="rem").get_layer("class_caps")
    matrix = built(PrimaryMatrixCaps(4), (None, 6, 6, 8), None)
    for weights in (
        weights_of(em, "transformation", *layers),
        weights_of(em, "beta_a", *layers[:2]),
        [deepcaps.transformation, deepcaps.bias],
        [matrix.pose_conv.kernel, matrix.activation_conv.kernel],
    ):
        arrays = [keras.ops.convert_to_numpy(w).ravel() for w in weights]
        for one, other in itertools.combinations(arrays, 2):
            common = min(len(one), len(other))
            likeness = np.corrcoef(one[:common], other[:common])[0, 1]
            assert abs(likeness) < 0.99


def test_a_seed_is_kept():
    initializer = keras.initializers.RandomNormal(seed=7)
    one, other = (
        built(
            PrimaryMatrixCaps(2, kernel_initializer=initializer),
            (None, 6, 6, 8),
            None,
        )
        for _ in range(2)
    )
    np.testing.assert_array_equal(one.pose_conv.kernel, other.pose_conv.kernel)

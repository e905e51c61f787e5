"""ClassCaps, Length, and the layers as a stack."""

import keras
import numpy as np
import pytest

import tfcaps
from tests import reference
from tests.golden import load
from tests.gradients import value_and_gradients
from tests.layer_votes import votes_of
from tests.tolerance import SUMS
from tfcaps.layers import ClassCaps, ConvCaps, FcCaps, Length


def class_caps_with(weights, input_shape, **kwargs):
    """Returns a layer of 6 capsules of 8 components with given weights."""
    layer = ClassCaps(6, 8, **kwargs)
    layer.build(input_shape)
    layer.set_weights(weights)
    return layer


@pytest.mark.parametrize(
    "shape", [(24, 4), (2, 3, 4, 4)], ids=["flat", "spatial"]
)
def test_class_caps_equals_the_public_implementation(shape):
    golden = load("06_dense_capsules")
    layer = class_caps_with([golden["weights"], golden["bias"]], (None, *shape))
    children = golden["input_poses"].reshape(-1, *shape)
    poses, couplings = layer(children, return_couplings=True)
    expected = golden["poses_iter3"]
    np.testing.assert_allclose(layer(children), expected, atol=1e-5)
    np.testing.assert_allclose(poses, expected, atol=1e-5)
    np.testing.assert_allclose(couplings, golden["couplings_iter3"], atol=1e-5)
    np.testing.assert_allclose(
        Length()(poses), golden["activations_iter3"], atol=1e-5
    )
    votes = votes_of(layer, children)
    np.testing.assert_allclose(votes, golden["votes"], atol=1e-5)


def test_self_attention_caps_equal_the_public_implementation():
    golden = load("05_self_attention_fccaps")
    layer = ClassCaps(5, 16, routing="self_attention")
    layer.build((None, 16, 8))
    layer.set_weights([golden["weights"], golden["bias"]])
    votes = votes_of(layer, golden["input_poses"])
    np.testing.assert_allclose(votes, golden["votes"], atol=1e-5)
    names = ("poses", "activations", "couplings_before_bias")
    outputs = layer(
        golden["input_poses"], return_activations=True, return_couplings=True
    )
    for name, output in zip(names, outputs, strict=True):
        np.testing.assert_allclose(
            output, golden[name], atol=1e-5, err_msg=name
        )


@pytest.mark.parametrize("iterations", [1, 3])
def test_gradients_of_class_caps_equal_the_public_implementation(iterations):
    golden = load("02_dense_dynamic_autograd")
    weights = [golden["weights"], golden["bias"]]
    routing = tfcaps.routing.DynamicRouting(iterations, gradient="full")
    layer = class_caps_with(weights, (None, 16, 4), routing=routing)

    def poses_of(children, weights):
        others = layer.non_trainable_variables
        return layer.stateless_call(weights, others, children)[0]

    poses, (children, (matrices, bias)) = value_and_gradients(
        poses_of, golden["input_poses"], weights, upstream=golden["upstream"]
    )
    np.testing.assert_allclose(
        poses, golden[f"poses_iter{iterations}"], atol=1e-5
    )
    _, couplings = layer(golden["input_poses"], return_couplings=True)
    np.testing.assert_allclose(
        couplings, golden[f"couplings_iter{iterations}"], atol=1e-5
    )
    for name, gradient in (
        ("input", children),
        ("weights", matrices),
        ("bias", bias),
    ):
        expected = golden[f"grad_{name}_through_iter{iterations}"]
        np.testing.assert_allclose(gradient, expected, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("share", [None, "type", "all"], ids=str)
def test_class_caps_equals_the_loops(share, rng):
    children = rng.normal(size=(2, 2, 3, 2, 4)).astype("float32")
    matrices = {None: (12,), "type": (2,), "all": ()}[share]
    transformation = rng.normal(size=(*matrices, 6, 4, 8)).astype("float32")
    bias = rng.normal(size=(6, 8)).astype("float32")
    layer = class_caps_with(
        [transformation, bias], children.shape, routing=2, share=share
    )
    poses, couplings = layer(children, return_couplings=True)
    expected = reference.dynamic_routing(
        reference.votes(children, transformation, share), bias, iterations=2
    )
    np.testing.assert_allclose(poses, expected[0], atol=1e-5)
    np.testing.assert_allclose(couplings, expected[1], atol=1e-5)


def test_children_are_counted_row_column_type():
    children = np.zeros((1, 2, 3, 4, 1), "float32")
    children[0, 1, 2, 3] = 1.0
    # Only the matrices of the last child vote, and for one parent.
    transformation = np.zeros((24, 6, 1, 8), "float32")
    transformation[(1 * 3 + 2) * 4 + 3, 5] = 1.0
    layer = class_caps_with(
        [transformation], children.shape, routing=1, use_bias=False
    )
    lengths = np.asarray(Length()(layer(children)))
    assert lengths[0, 5] > 0
    assert not np.any(lengths[0, :5])


@pytest.mark.parametrize("gradient", ["last", "full"])
def test_gradient_mode_reaches_the_transformation(gradient, rng):
    children = rng.normal(size=(2, 5, 3)).astype("float32")
    routing = tfcaps.routing.DynamicRouting(gradient=gradient)
    layer = ClassCaps(6, 8, routing=routing)
    _, couplings = layer(children, return_couplings=True)

    def with_constant_couplings(transformation):
        votes = keras.ops.einsum("bik,ijkd->bijd", children, transformation)
        total = keras.ops.einsum("bij,bijd->bjd", couplings, votes)
        return tfcaps.ops.squash(total + layer.bias)

    def with_layer(transformation):
        with keras.StatelessScope([(layer.transformation, transformation)]):
            return layer(children)

    weights = layer.transformation.numpy()
    poses, (actual,) = value_and_gradients(with_layer, weights)
    expected, (constant,) = value_and_gradients(
        with_constant_couplings, weights
    )
    np.testing.assert_allclose(poses, expected, atol=SUMS)
    assert np.allclose(actual, constant, atol=1e-5) == (gradient == "last")


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


def test_fc_caps_is_class_caps():
    assert FcCaps is ClassCaps


@pytest.mark.parametrize("shape", [(2, 3), (2, 2, 3, 4)], ids=str)
def test_length_is_the_norm_over_the_last_axis(shape, rng):
    poses = rng.normal(size=(5, *shape)).astype("float32")
    expected = np.linalg.norm(poses, axis=-1)
    np.testing.assert_allclose(Length()(poses), expected, atol=SUMS)


def test_layers_stack_in_a_sequential_model(rng):
    model = keras.Sequential()
    model.add(keras.Input((9, 9, 1)))
    model.add(keras.layers.Conv2D(8, 3, activation="relu"))
    model.add(tfcaps.layers.PrimaryCaps(2, 4, kernel_size=3, strides=2))
    model.add(tfcaps.layers.ClassCaps(10, 16, routing=3))
    model.add(tfcaps.layers.Length())
    assert model.output_shape == (None, 10)
    model.compile("adam", tfcaps.losses.MarginLoss(), jit_compile=False)
    images = rng.uniform(size=(4, 9, 9, 1)).astype("float32")
    history = model.fit(images, np.arange(4), epochs=8, verbose=0)
    losses = history.history["loss"]
    assert losses[-1] < losses[0]


def test_without_a_bias_it_is_none():
    for layer, children in (
        (ClassCaps(3, 4, use_bias=False), (2, 5, 4)),
        (ConvCaps(3, 4, 3, use_bias=False), (2, 3, 3, 2, 4)),
        (ClassCaps(3, 4, routing="em"), (2, 5, 4)),
    ):
        layer.build(children)
        assert layer.bias is None


def test_children_that_share_one_matrix_all_vote(rng):
    poses = rng.normal(size=(2, 5, 4)).astype("float32")
    layer = ClassCaps(3, 4, share="all")
    layer.build(poses.shape)
    np.testing.assert_allclose(
        layer.voting_activations(poses),
        np.linalg.norm(poses, axis=-1),
        rtol=1e-6,
    )

"""ConvCaps: windows of children, each of them routed."""

import functools

import keras
import numpy as np
import pytest

from tests import reference
from tests.golden import load
from tests.gradients import value_and_gradients
from tests.layer_votes import votes_of
from tests.reference_windows import Windows, routed_windows, window_votes
from tests.tolerance import SUMS
from tfcaps.layers import CapsuleConv2D, ClassCaps, ConvCaps
from tfcaps.routing import EMRouting

ALL = {"return_activations": True, "return_couplings": True}


def conv_caps_with(weights, input_shape, *args, **kwargs):
    layer = ConvCaps(*args, **kwargs)
    layer.build((None, *input_shape[1:]))
    layer.set_weights(weights)
    return layer


@functools.cache
def golden_conv_caps(name):
    return load(f"06_conv_capsules_{name}")


def golden_layer(golden, **kwargs):
    return conv_caps_with(
        [golden["weights"], golden["bias"]],
        golden["input_poses"].shape,
        *golden["bias"].shape,
        int(golden["kernel"]),
        int(golden["stride"]),
        **kwargs,
    )


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("name", ["a", "b"])
def test_conv_caps_equals_the_public_implementation(name, iterations):
    golden = golden_conv_caps(name)
    layer = golden_layer(golden, routing=iterations)

    def call(poses, transformation):
        weights = [(layer.transformation, transformation)]
        with keras.StatelessScope(state_mapping=weights):
            return layer(poses, **ALL)

    def expected(array):
        return golden[f"{array}_iter{iterations}"]

    outputs = layer(golden["input_poses"], **ALL)
    for output, array in zip(
        outputs, ("poses", "activations", "couplings"), strict=True
    ):
        np.testing.assert_allclose(output, expected(array), atol=1e-5)
    _, gradients = value_and_gradients(
        lambda *values: call(*values)[0],
        golden["input_poses"],
        golden["weights"],
        upstream=golden["upstream"],
    )
    for gradient, array in zip(gradients, ("input", "weights"), strict=True):
        wanted = expected(f"grad_{array}_last_only")
        np.testing.assert_allclose(gradient, wanted, atol=2e-4)


@pytest.mark.parametrize("name", ["a", "b"])
def test_the_loops_cast_the_votes_of_the_public_implementation(name):
    golden = golden_conv_caps(name)
    poses, kernel = golden["input_poses"], int(golden["kernel"])
    strides = (int(golden["stride"]),) * 2
    windows = Windows(*poses.shape[1:3], (kernel, kernel), strides, "valid")
    votes = window_votes(poses, golden["weights"], windows)
    np.testing.assert_allclose(votes, golden["votes"], atol=1e-5)


@pytest.mark.parametrize("name", ["a", "b"])
def test_conv_caps_casts_the_votes_of_the_public_implementation(name):
    golden = golden_conv_caps(name)
    votes = votes_of(golden_layer(golden), golden["input_poses"])
    votes = votes.reshape(golden["votes"].shape)
    np.testing.assert_allclose(votes, golden["votes"], atol=1e-5)


@pytest.mark.parametrize("share_types", [False, True])
@pytest.mark.parametrize(
    ("kernel", "strides", "padding"),
    [
        ((2, 3), (1, 1), "valid"),
        ((3, 2), (1, 2), "same"),
        ((3, 3), (2, 3), "same"),
        ((1, 2), (3, 3), "valid"),
        ((2, 2), (3, 4), "same"),
    ],
    ids=str,
)
def test_conv_caps_equals_the_loops(kernel, strides, padding, share_types, rng):
    poses = rng.normal(size=(2, 5, 6, 2, 3)).astype("float32")
    matrices = kernel if share_types else (*kernel, 2)
    transformation = rng.normal(size=(*matrices, 4, 3, 5)).astype("float32")
    bias = rng.normal(size=(4, 5)).astype("float32")
    layer = conv_caps_with(
        [transformation, bias],
        poses.shape,
        4,
        5,
        kernel,
        strides,
        padding,
        routing=2,
        share_types=share_types,
    )
    windows = Windows(5, 6, kernel, strides, padding)
    votes = window_votes(
        poses, transformation, windows, share_types=share_types
    )
    expected, shares = routed_windows(
        votes, lambda v: reference.dynamic_routing(v, bias, iterations=2)
    )
    outputs = layer(poses, return_couplings=True)
    np.testing.assert_allclose(outputs[0], expected, atol=1e-5)
    np.testing.assert_allclose(outputs[1], shares, atol=1e-5)
    assert tuple(layer.compute_output_shape(poses.shape)) == expected.shape


def test_children_without_activation_outside_of_the_map(rng):
    """What is padded has no activation, so EM routing leaves it out."""
    poses = rng.normal(size=(1, 1, 1, 2, 4)).astype("float32")
    activations = np.ones((1, 1, 1, 2), "float32")
    layer = ConvCaps(3, 4, 3, padding="same", routing="em", matrix=True)
    means, _, shares = layer(poses, activations, **ALL)
    whole = ConvCaps(3, 4, 1, routing="em", matrix=True)
    whole.build(poses.shape)
    center = layer.transformation.numpy()[1:2, 1:2]
    whole.set_weights([center, *layer.get_weights()[1:]])
    expected, _, middle = whole(poses, activations, **ALL)
    np.testing.assert_allclose(means, expected, atol=1e-5)
    np.testing.assert_allclose(shares[:, :, :, 1:2, 1:2], middle, atol=1e-5)


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_equal_couplings_make_a_squashed_convolution(padding, rng):
    poses = rng.normal(size=(2, 6, 7, 2, 3)).astype("float32")
    settings = ((3, 2), (2, 3), padding)
    layer = ConvCaps(2, 4, *settings, routing="uniform", use_bias=False)
    outputs = layer(poses)
    conv = CapsuleConv2D(2, 4, *settings)
    conv.build(poses.shape)
    # [p, q, t, j, k, d] -> [p, q, t * k, j * d]
    kernel = layer.transformation.numpy().swapaxes(3, 4)
    conv.set_weights([kernel.reshape(3, 2, 6, 8) / 2])
    np.testing.assert_allclose(outputs, conv(poses), atol=1e-5)


@pytest.mark.parametrize(
    ("routing", "matrix"),
    [
        (3, False),
        (3, True),
        ("scaled_distance", False),
        ("self_attention", False),
        (EMRouting(3, inverse_temperature=0.1), True),
    ],
    ids=["dynamic", "matrix", "scaled_distance", "self_attention", "em"],
)
def test_window_of_the_whole_map_is_class_caps(routing, matrix, rng):
    poses = rng.normal(size=(2, 3, 2, 2, 4)).astype("float32")
    activations = rng.uniform(0.1, 0.9, size=(2, 3, 2, 2)).astype("float32")
    conv = ConvCaps(3, 4, (3, 2), routing=routing, matrix=matrix)
    conv.build(poses.shape)
    weights = [rng.normal(size=w.shape) for w in conv.get_weights()]
    conv.set_weights(weights)
    full = ClassCaps(3, 4, routing=routing, matrix=matrix)
    full.build(poses.shape)
    weights[0] = weights[0].reshape(12, *weights[0].shape[3:])
    full.set_weights(weights)
    outputs = conv(poses, activations, **ALL)
    for output, wanted in zip(
        outputs, full(poses, activations, **ALL), strict=True
    ):
        flat = np.reshape(output, wanted.shape)
        np.testing.assert_allclose(flat, wanted, atol=1e-5)


def test_moved_children_move_their_parents(rng):
    poses = rng.normal(size=(1, 8, 9, 2, 3)).astype("float32")
    layer = ConvCaps(3, 4, 3, 2, routing=2)
    parents = np.asarray(layer(poses))
    moved = np.asarray(layer(np.roll(poses, (2, 4), axis=(1, 2))))
    np.testing.assert_allclose(
        moved[:, 1:, 2:], parents[:, :-1, :-2], atol=SUMS
    )
    assert np.max(np.abs(moved[:, 1:, 1:] - parents[:, :-1, :-1])) > 1e-3


def test_activations_default_to_the_lengths_of_the_poses(rng):
    poses = rng.normal(size=(1, 3, 3, 2, 4)).astype("float32")
    layer = ConvCaps(3, 4, 2, routing="scaled_distance")
    expected = layer(poses, np.linalg.norm(poses, axis=-1))
    np.testing.assert_allclose(layer(poses), expected, atol=SUMS)
    shorter = layer(poses, 0.1 * np.linalg.norm(poses, axis=-1))
    assert np.max(np.abs(shorter - expected)) > 1e-3


def test_numpy_integers_are_sizes():
    layer = ConvCaps(3, 4, np.int64(3), (np.int32(2), 1))
    assert layer.kernel_size == (3, 3) and layer.strides == (2, 1)

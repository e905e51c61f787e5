"""ConvCaps: windows of children, each of them routed."""

import functools

import keras
import numpy as np
import pytest

from tests import reference
from tests.golden import load
from tests.gradients import value_and_gradients
from tests.reference_windows import Windows, routed_windows, window_votes
from tests.tolerance import assert_close
from tfcaps.layers import ClassCaps, ConvCaps
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
        assert_close(output, expected(array), atol=1e-5)
    _, gradients = value_and_gradients(
        lambda *values: call(*values)[0],
        golden["input_poses"],
        golden["weights"],
        upstream=golden["upstream"],
    )
    for gradient, array in zip(gradients, ("input", "weights"), strict=True):
        wanted = expected(f"grad_{array}_last_only")
        assert_close(gradient, wanted, atol=2e-4)


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
    assert_close(outputs[0], expected, atol=1e-5)
    assert_close(outputs[1], shares, atol=1e-5)
    assert tuple(layer.compute_output_shape(poses.shape)) == expected.shape


def test_children_without_activation_outside_of_the_map(rng):
    """Padding has no activation, so EM routing leaves it out."""
    poses = rng.normal(size=(1, 1, 1, 2, 4)).astype("float32")
    activations = np.ones((1, 1, 1, 2), "float32")
    layer = ConvCaps(3, 4, 3, padding="same", routing="em", matrix=True)
    means, _, shares = layer(poses, activations, **ALL)
    whole = ConvCaps(3, 4, 1, routing="em", matrix=True)
    whole.build(poses.shape)
    center = layer.transformation.numpy()[1:2, 1:2]
    whole.set_weights([center, *layer.get_weights()[1:]])
    expected, _, middle = whole(poses, activations, **ALL)
    assert_close(means, expected, atol=1e-5)
    assert_close(shares[:, :, :, 1:2, 1:2], middle, atol=1e-5)


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
        assert_close(flat, wanted, atol=1e-5)


def test_activations_default_to_the_lengths_of_the_poses(rng):
    poses = rng.normal(size=(1, 3, 3, 2, 4)).astype("float32")
    layer = ConvCaps(3, 4, 2, routing="scaled_distance")
    expected = layer(poses, np.linalg.norm(poses, axis=-1))
    assert_close(layer(poses), expected)
    shorter = layer(poses, 0.1 * np.linalg.norm(poses, axis=-1))
    assert np.max(np.abs(shorter - expected)) > 1e-3


def test_numpy_integers_are_sizes():
    layer = ConvCaps(3, 4, np.int64(3), (np.int32(2), 1))
    assert layer.kernel_size == (3, 3) and layer.strides == (2, 1)

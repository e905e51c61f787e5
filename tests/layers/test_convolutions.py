"""Convolutions to and between capsules: the primary ones, and DeepCaps's."""

import keras
import numpy as np
import pytest

from tests import reference
from tests.golden import assert_golden, load
from tests.networks import built
from tests.tolerance import assert_close
from tfcaps.layers import CapsuleConv2D, PrimaryCaps, PrimaryMatrixCaps, Squash


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"padding": "same"},
        {"strides": (2, 1), "padding": "same"},
    ],
    ids=["valid", "same", "same-strides"],
)
def test_primary_caps_is_a_squashed_convolution(settings, rng):
    images = rng.normal(size=(2, 7, 8, 3)).astype("float32")
    layer = PrimaryCaps(2, 4, 3, **settings)
    poses = np.asarray(layer(images))
    conv = keras.layers.Conv2D(8, 3, **settings)
    built(conv, images.shape, layer.get_weights())
    features = np.asarray(conv(images))
    features = features.reshape(*features.shape[:3], 2, 4)
    assert_close(poses, reference.squash(features))


@pytest.mark.parametrize("form", ["", "_strided"], ids=["whole", "strided"])
def test_depthwise_primary_caps_equal_the_public_implementation(form):
    golden = load("05_depthwise_primary_caps")
    images, kernel = golden[f"images{form}"], golden[f"kernel{form}"]
    strides = int(golden.get(f"stride{form}", 1))
    layer = PrimaryCaps(
        6, 4, len(kernel), strides, depthwise=True, squash="efficient"
    )
    built(layer, images.shape, [kernel[..., None], golden["conv_bias"]])
    expected = golden[f"poses{form}"]
    assert_close(np.reshape(layer(images), expected.shape), expected, atol=1e-5)


@pytest.mark.parametrize("strides", [1, 2])
def test_capsule_conv_equals_the_public_implementation(strides):
    golden = load("08_deepcaps_conv2dcaps")
    children, weights = golden["input_poses"], golden["weights"]
    layer = CapsuleConv2D(4, 5, strides=strides)
    built(layer, children.shape, [weights.reshape(3, 3, 12, 20)])
    assert_golden(golden, f"{{}}_stride{strides}", poses=layer(children))


def test_capsule_conv_can_have_the_settings_of_primary_caps(rng):
    children = rng.normal(size=(2, 5, 6, 2, 3)).astype("float32")
    settings = {"padding": "valid", "use_bias": True, "squash": "efficient"}
    layer = built(CapsuleConv2D(2, 4, 2, **settings), children.shape, rng)
    features = np.asarray(layer.conv(children.reshape(2, 5, 6, 6)))
    expected = reference.efficient_squash(features.reshape(2, 4, 5, 2, 4))
    assert_close(layer(children), expected)
    assert_close(Squash("efficient")(features.reshape(2, 4, 5, 2, 4)), expected)


def test_first_kernels_are_as_large_as_those_of_deepcaps():
    """As Keras 2 made kernels of six axes."""
    shape = (None, 4, 4, 16, 8)
    kernel = np.asarray(built(CapsuleConv2D(32, 8), shape, None).conv.kernel)
    limit = np.sqrt(6 / (2 * np.sqrt(3 * 3 * 16 * 8 * 32 * 8)))
    assert 0.99 * limit < np.max(np.abs(kernel)) <= limit
    assert np.std(kernel) == pytest.approx(limit / np.sqrt(3), rel=0.02)
    plain = built(CapsuleConv2D(32, 8, kernel_initializer="zeros"), shape, None)
    assert not np.any(plain.conv.kernel)


def test_primary_matrix_caps_is_two_convolutions(rng):
    features = rng.normal(size=(2, 5, 6, 3)).astype("float32")
    layer = PrimaryMatrixCaps(2, 4, 3, 2, "same")
    poses, activations = layer(features)
    expected = np.asarray(layer.pose_conv(features)).reshape(2, 3, 3, 2, 4)
    assert_close(poses, expected)
    logits = np.asarray(layer.activation_conv(features))
    assert_close(activations, 1 / (1 + np.exp(-logits)))

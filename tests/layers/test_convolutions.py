"""Convolutions to and between capsules: the primary ones, and DeepCaps's."""

import keras
import numpy as np
import pytest

from tests import reference
from tests.golden import assert_golden, load
from tests.networks import built
from tests.tolerance import assert_close
from tfcaps.layers import CapsuleConv2D, PrimaryCaps, Squash


@pytest.mark.parametrize(
    ("kwargs", "rows_and_columns"),
    [
        ({}, (5, 6)),
        ({"strides": 2}, (3, 3)),
        ({"padding": "same"}, (7, 8)),
        ({"strides": (2, 1), "padding": "same"}, (4, 8)),
    ],
    ids=["valid", "strides", "same", "same-strides"],
)
def test_primary_caps_is_a_squashed_convolution(kwargs, rows_and_columns, rng):
    images = rng.normal(size=(2, 7, 8, 3)).astype("float32")
    layer = PrimaryCaps(2, 4, 3, **kwargs)
    poses = np.asarray(layer(images))
    assert poses.shape == (2, *rows_and_columns, 2, 4)
    conv = keras.layers.Conv2D(8, 3, **kwargs)
    built(conv, images.shape, layer.get_weights())
    features = np.asarray(conv(images)).reshape(poses.shape)
    expected = np.apply_along_axis(reference.squash, -1, features)
    assert_close(poses, expected)


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
    expected = np.apply_along_axis(
        reference.efficient_squash, -1, features.reshape(2, 4, 5, 2, 4)
    )
    assert_close(layer(children), expected)


def test_first_kernels_are_as_large_as_those_of_deepcaps():
    """As Keras 2 made kernels of six axes."""
    layer = CapsuleConv2D(32, 8)
    layer.build((None, 4, 4, 16, 8))
    kernel = layer.conv.kernel.numpy()
    limit = np.sqrt(6 / (2 * np.sqrt(3 * 3 * 16 * 8 * 32 * 8)))
    assert 0.99 * limit < np.max(np.abs(kernel)) <= limit
    assert np.std(kernel) == pytest.approx(limit / np.sqrt(3), rel=0.02)
    plain = CapsuleConv2D(32, 8, kernel_initializer="zeros")
    plain.build((None, 4, 4, 16, 8))
    assert not np.any(plain.conv.kernel)


@pytest.mark.parametrize(
    ("name", "shrink"),
    [("hinton", reference.squash), ("efficient", reference.efficient_squash)],
)
def test_squash_layer_shrinks_the_last_axis(name, shrink, rng):
    capsules = rng.normal(size=(2, 3, 3, 2, 4)).astype("float32")
    expected = np.apply_along_axis(shrink, -1, capsules)
    assert_close(Squash(name)(capsules), expected)

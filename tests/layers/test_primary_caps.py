"""PrimaryCaps: a convolution whose channels become capsules."""

import keras
import numpy as np
import pytest

from tests import reference
from tests.golden import load
from tests.tolerance import SUMS
from tfcaps.layers import PrimaryCaps


@pytest.mark.parametrize("use_bias", [True, False])
def test_primary_caps_cuts_channels_into_consecutive_components(use_bias, rng):
    features = rng.normal(size=(2, 4, 5, 6)).astype("float32")
    layer = PrimaryCaps(2, 3, kernel_size=1, use_bias=use_bias)
    layer.build(features.shape)
    bias = [np.full(6, 0.5, "float32")] if use_bias else []
    layer.set_weights([np.eye(6, dtype="float32")[None, None], *bias])
    poses = np.asarray(layer(features))
    assert poses.shape == (2, 4, 5, 2, 3)
    row = features[1, 3, 4] + (0.5 if use_bias else 0.0)
    expected = [reference.squash(row[:3]), reference.squash(row[3:])]
    np.testing.assert_allclose(poses[1, 3, 4], expected, atol=SUMS)


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
    conv.build(images.shape)
    conv.set_weights(layer.get_weights())
    features = np.asarray(conv(images)).reshape(poses.shape)
    expected = np.apply_along_axis(reference.squash, -1, features)
    np.testing.assert_allclose(poses, expected, atol=SUMS)


@pytest.mark.parametrize("form", ["", "_strided"], ids=["whole", "strided"])
def test_depthwise_primary_caps_equal_the_public_implementation(form):
    golden = load("05_depthwise_primary_caps")
    images, kernel = golden[f"images{form}"], golden[f"kernel{form}"]
    strides = int(golden.get(f"stride{form}", 1))
    layer = PrimaryCaps(
        6, 4, len(kernel), strides, depthwise=True, squash="efficient"
    )
    layer.build(images.shape)
    layer.set_weights([kernel[..., None], golden["conv_bias"]])
    expected = golden[f"poses{form}"]
    poses = np.reshape(layer(images), expected.shape)
    np.testing.assert_allclose(poses, expected, atol=1e-5)


def test_primary_caps_takes_images_of_any_size():
    images = keras.Input((None, None, 3))
    model = keras.Model(images, PrimaryCaps(2, 4, 3)(images))
    assert model.output_shape == (None, None, None, 2, 4)
    for side in (5, 6):
        shape = (2, side, side, 3)
        poses = model.predict(np.ones(shape), verbose=0)
        assert poses.shape == (2, side - 2, side - 2, 2, 4)

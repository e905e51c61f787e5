"""PrimaryCaps: a convolution whose channels become capsules."""

import keras
import numpy as np
import pytest

from tests import reference
from tests.golden import load
from tests.networks import built
from tests.tolerance import assert_close
from tfcaps.layers import PrimaryCaps


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

"""Compacted models: types of capsules that convolutions make."""

import keras
import numpy as np
import pytest
from keras import layers

from tests.compaction import (
    capsnet,
    compacted,
    fill,
    filters,
    randomized,
    silence,
)
from tfcaps.layers import CapsuleConv2D, ClassCaps, PrimaryCaps, Squash


def deep_capsnet(rng, **primary):
    """Returns a convolution, depthwise PrimaryCaps and ClassCaps."""
    images = keras.Input((7, 7, 2))
    features = layers.Conv2D(12, 3, activation="relu", name="first")(images)
    capsules = PrimaryCaps(
        3, 4, 3, 2, depthwise=True, name="primary", **primary
    )(features)
    poses = ClassCaps(3, 5, name="class")(capsules)
    return randomized(keras.Model(images, poses), rng)


def test_depthwise_primary_caps_lose_silent_types(rng):
    model = deep_capsnet(rng)
    fill(model.get_layer("class").transformation, np.s_[1::3])
    compact = compacted(model)
    layer = compact.get_layer("primary")
    assert (layer.num_types, filters(compact)) == (2, 8)
    rest = np.r_[0:4, 8:12]
    kernel, bias = model.get_layer("primary").get_weights()
    np.testing.assert_array_equal(layer.conv.kernel, kernel[:, :, rest])
    np.testing.assert_array_equal(layer.conv.bias, bias[rest])


@pytest.mark.parametrize(
    ("channels", "bias", "left"),
    [
        (np.s_[4:8], 0.0, 2),
        (np.s_[4:8], 0.3, 3),
        (np.s_[4:6], 0.0, 3),
    ],
    ids=["whole", "constant", "half"],
)
def test_depthwise_zero_types_are_left_out(channels, bias, left, rng):
    model = deep_capsnet(rng)
    conv = model.get_layer("primary").conv
    fill(conv.kernel, np.s_[:, :, channels])
    fill(conv.bias, channels, bias)
    assert compacted(model).get_layer("primary").num_types == left


def test_depthwise_types_of_zero_channels_are_left_out(rng):
    model = deep_capsnet(rng, use_bias=False)
    silence(model.get_layer("first"), np.s_[4:8], bias=-0.7)
    compact = compacted(model)
    assert compact.get_layer("primary").num_types == 2


def test_depthwise_type_stays_whole_if_another_layer_needs_a_channel(rng):
    images = keras.Input((7, 7, 2))
    features = layers.Conv2D(12, 3, name="first")(images)
    capsules = PrimaryCaps(3, 4, 3, 2, depthwise=True, name="primary")(features)
    poses = ClassCaps(3, 4, name="class")(capsules)
    other = layers.Conv2D(1, 3, name="other")
    model = keras.Model(images, [poses, other(features)])
    fill(model.get_layer("class").transformation, np.s_[1::3])
    fill(other.kernel, np.s_[:, :, :6])
    fill(other.kernel, np.s_[:, :, 7:])
    compact = compacted(randomized(model, rng))
    assert filters(compact) == 12
    assert len(compact.get_layer("class").origins) == 8


def test_capsule_convolutions_lose_types(rng):
    model = capsnet(
        layers.ZeroPadding3D(
            ((1, 1), (1, 1), (0, 0)), data_format="channels_last"
        ),
        CapsuleConv2D(3, 5, padding="valid", use_bias=True, name="capsule"),
        Squash(),
        CapsuleConv2D(2, 4, name="last"),
        rng=rng,
    )
    silence(model.get_layer("primary").conv, np.s_[4:8])
    fill(model.get_layer("last").conv.kernel, np.s_[:, :, 10:15])
    compact = compacted(model)
    assert compact.get_layer("primary").num_types == 2
    layer = compact.get_layer("capsule")
    kernel, bias = model.get_layer("capsule").get_weights()
    rest = kernel[:, :, np.r_[0:4, 8:12], :10]
    np.testing.assert_array_equal(layer.conv.kernel, rest)
    np.testing.assert_array_equal(layer.conv.bias, bias[:10])


def test_zero_types_stay_zero_through_padding_and_squash(rng):
    model = capsnet(
        CapsuleConv2D(3, 5, name="capsule"),
        layers.ZeroPadding3D(
            ((1, 1), (1, 1), (0, 0)), data_format="channels_last"
        ),
        Squash("efficient"),
        ClassCaps(3, 4, name="class"),
        rng=rng,
    )
    fill(model.get_layer("capsule").conv.kernel, np.s_[..., 5:10])
    compact = compacted(model)
    assert compact.get_layer("capsule").num_types == 2
    assert compact.get_layer("class").grid == (5, 5, 3)


def test_depthwise_capsule_convolution_needs_every_type(rng):
    model = capsnet(
        CapsuleConv2D(3, 4, depthwise=True, name="deep"),
        ClassCaps(3, 4, name="class"),
        rng=rng,
    )
    fill(model.get_layer("class").transformation, np.s_[1::3])
    compact = compacted(model)
    assert compact.get_layer("primary").num_types == 3
    assert len(compact.get_layer("class").origins) == 18


@pytest.mark.parametrize(
    ("between", "left"),
    [
        (layers.Activation("tanh"), 2),
        (layers.Activation("sigmoid"), 3),
        (layers.ReLU(threshold=0.1, negative_slope=0.5), 3),
        (layers.ZeroPadding3D(1, data_format="channels_last"), 3),
        (
            layers.ZeroPadding3D(
                ((0, 0), (1, 1), (0, 0)), data_format="channels_first"
            ),
            3,
        ),
        (layers.BatchNormalization(), 3),
        (layers.GroupNormalization(groups=-1), 3),
    ],
    ids=["tanh", "sigmoid", "threshold", "more_types", "more_types_first"]
    + ["batch", "instance"],
)
def test_zero_types_stay_unless_a_layer_leaves_them_zero(between, left, rng):
    layer = type(between).from_config(between.get_config())
    model = capsnet(layer, ClassCaps(3, 4, name="class"), rng=rng)
    silence(model.get_layer("primary").conv, np.s_[4:8])
    assert compacted(model).get_layer("primary").num_types == left

"""Compacted models: types of capsules that cast no votes, or are zero."""

import keras
import numpy as np
import pytest
from keras import layers

from tests.compaction import (
    capsnet,
    compacted,
    fill,
    filters,
    is_left_alone,
    randomized,
    silence,
)
from tests.tolerance import assert_all_equal
from tfcaps.layers import (
    CapsuleConv2D,
    ClassCaps,
    ConvCaps,
    PrimaryCaps,
    PrimaryMatrixCaps,
    Squash,
)
from tfcaps.routing import DynamicRouting, EMRouting, ScaledDistanceRouting

EM = EMRouting(2, 0.1, 1e-2)
OF_SAMPLES = ScaledDistanceRouting(distance_scale="sample")


def class_caps(*arguments, **settings):
    return lambda: ClassCaps(3, 4, *arguments, name="last", **settings)


def conv_caps(*arguments, **settings):
    return lambda: ConvCaps(3, 4, 2, *arguments, name="last", **settings)


def depthwise_conv():
    return CapsuleConv2D(3, 4, depthwise=True)


def copy_of(layer):
    return lambda: type(layer).from_config(layer.get_config())


def padding(sides, data_format="channels_last"):
    return layers.ZeroPadding3D(sides, data_format=data_format)


def votes(where):
    """Returns what makes children of the last layer vote zero."""
    return lambda model: fill(model.get_layer("last").transformation, where)


def zero(channels, bias=0.0):
    """Returns what makes channels of PrimaryCaps constant."""

    def silence_some(model):
        silence(model.get_layer("primary").conv, channels, bias)

    return silence_some


def two_types(where):
    """Returns what makes a type vote zero, and another one zero."""

    def silence_some(model):
        votes(where)(model)
        zero(np.s_[8:12])(model)

    return silence_some


ONE_TYPE = zero(np.s_[4:8])
TYPE_OF_CONV = votes(np.s_[:, :, 1])
OF_CLASS, OF_CONV = two_types(np.s_[1::3]), two_types(np.s_[:, :, 1])
SHARED = class_caps("self_attention", share="type")
COORDINATES = class_caps(matrix=True, coordinates=True, share="type")
# Layers above PrimaryCaps of three types of four components at 3x3 places, what
# is silenced, how many types are left, and how many matrices of children.
CAPSULES = {
    "child": ([class_caps()], votes(4), 3, None),
    "type": ([class_caps()], votes(np.s_[1::3]), 2, 18),
    "zero": ([class_caps()], ONE_TYPE, 2, 18),
    "constant": ([class_caps()], zero(np.s_[4:8], 0.3), 3, None),
    "half": ([class_caps()], zero(np.s_[4:6]), 3, None),
    "class-shared": ([SHARED], votes(1), 2, 2),
    "class-all": ([class_caps(share="all")], ONE_TYPE, 2, None),
    "class-coordinates": ([COORDINATES], OF_CLASS, 3, None),
    "class-em": ([class_caps(EM)], OF_CLASS, 3, None),
    "class-regularized": ([class_caps("regularized")], OF_CLASS, 3, None),
    "class-sample": ([class_caps(OF_SAMPLES)], OF_CLASS, 3, None),
    "conv": ([conv_caps()], TYPE_OF_CONV, 2, None),
    "conv-matrix": ([conv_caps(matrix=True)], TYPE_OF_CONV, 2, None),
    "class-matrix": ([class_caps(matrix=True)], votes(np.s_[1::3]), 2, 18),
    "depthwise": ([depthwise_conv, class_caps()], votes(np.s_[1::3]), 3, None),
    "conv-zero": ([conv_caps()], ONE_TYPE, 2, None),
    "conv-em": ([conv_caps(routing=EM)], OF_CONV, 3, None),
    "conv-sample": ([conv_caps(routing=OF_SAMPLES)], OF_CONV, 3, None),
    **{
        f"conv-{name}": ([conv_caps(1, sides, routing)], TYPE_OF_CONV, 2, None)
        for name, sides, routing in (
            ("scaled_distance", "valid", "scaled_distance"),
            ("self_attention", "same", "self_attention"),
            ("uniform", "same", "uniform"),
            ("leaky", "valid", DynamicRouting(leaky=True)),
        )
    },
    **{
        name: ([copy_of(between), class_caps()], ONE_TYPE, left, left * 9)
        for name, between, left in (
            ("tanh", layers.Activation("tanh"), 2),
            ("sigmoid", layers.Activation("sigmoid"), 3),
            ("threshold", layers.ReLU(threshold=0.1, negative_slope=0.5), 3),
            ("batch", layers.BatchNormalization(), 3),
            ("instance", layers.GroupNormalization(groups=-1), 3),
        )
    },
    **{
        name: ([copy_of(more), class_caps()], ONE_TYPE, 3, None)
        for name, more in (
            ("more_types", padding(1)),
            ("first", padding(((0, 0), (1, 1), (0, 0)), "channels_first")),
        )
    },
}


@pytest.mark.parametrize("name", CAPSULES)
def test_types_and_children_are_left_that_something_needs(name, rng):
    above, silence_some, types, children = CAPSULES[name]
    model = capsnet(*(make() for make in above), rng=rng)
    silence_some(model)
    compact = compacted(model)
    assert compact.get_layer("primary").num_types == types
    last = compact.get_layer("last")
    if types == 3 and children in (None, 27):
        assert compact.count_params() == model.count_params()
    elif children is not None:
        assert last.transformation.shape[0] == children
    if name in ("class-all", "conv-shared"):
        expected = model.get_layer("last").get_weights()
        assert_all_equal(last.get_weights(), expected)


@pytest.mark.parametrize(
    ("asked", "left"), [("return_couplings", 27), ("return_activations", 18)]
)
def test_children_stay_whose_couplings_are_returned(asked, left, rng):
    images = keras.Input((7, 7, 2))
    capsules = PrimaryCaps(3, 4, 3, 2)(images)
    outputs = ClassCaps(3, 4, name="last")(capsules, **{asked: True})
    model = randomized(keras.Model(images, outputs), rng)
    votes(np.s_[1::3])(model)
    assert compacted(model).get_layer("last").transformation.shape[0] == left


def test_hidden_capsules_compete_and_stay(rng):
    last = ClassCaps(3, 4, "self_attention", name="last")
    model = capsnet(ClassCaps(6, 4), last, rng=rng)
    votes([0, 3])(model)
    assert is_left_alone(model)


@pytest.mark.parametrize("some", [True, False])
def test_child_type_that_another_layer_needs_stays(some, rng):
    images = keras.Input((7, 7, 2))
    capsules = PrimaryCaps(3, 4, 3, 2, name="primary")(images)
    first, second = (ClassCaps(3, 4, name=name) for name in "ab")
    model = keras.Model(images, [first(capsules), second(capsules)])
    fill(first.transformation, np.s_[1::3] if some else np.s_[:])
    fill(second.transformation, np.s_[2::3] if some else np.s_[::3])
    compact = compacted(randomized(model, rng))
    a, b = compact.get_layer("a"), compact.get_layer("b")
    assert compact.get_layer("primary").num_types == (3 if some else 2)
    assert a.transformation.shape[0] == b.transformation.shape[0]
    assert b.transformation.shape[0] == (27 if some else 18)


def test_children_with_activations_of_their_own_stay(rng):
    images = keras.Input((3, 3, 2))
    poses, activations = PrimaryMatrixCaps(3, 4)(images)
    layer = ClassCaps(3, 4, "scaled_distance", name="class")
    model = keras.Model(images, layer(poses, activations=activations))
    fill(layer.transformation, 4)
    assert is_left_alone(randomized(model, rng))


def first(channels):
    return lambda model: silence(model.get_layer("first"), channels)


@pytest.mark.parametrize(
    ("use_bias", "silence_some", "left"),
    [
        (True, votes(np.s_[1::3]), 2),
        (False, first(np.s_[4:8]), 2),
        (False, first(np.s_[4:6]), 3),
        (True, first(np.s_[4:8]), 3),
    ],
    ids=["silent", "zero", "half", "constant"],
)
def test_depthwise_types_are_left_out(use_bias, silence_some, left, rng):
    images = keras.Input((7, 7, 2))
    features = layers.Conv2D(12, 3, activation="relu", name="first")(images)
    settings = {"depthwise": True, "use_bias": use_bias, "name": "primary"}
    primary = PrimaryCaps(3, 4, 3, 2, **settings)
    poses = ClassCaps(3, 5, name="last")(primary(features))
    model = randomized(keras.Model(images, poses), rng)
    silence_some(model)
    compact = compacted(model)
    assert compact.get_layer("primary").num_types == left
    assert filters(compact) == 4 * left


def test_capsule_convolutions_lose_types(rng):
    model = capsnet(
        padding(((1, 1), (1, 1), (0, 0))),
        CapsuleConv2D(3, 5, padding="valid", use_bias=True, name="capsule"),
        Squash(),
        CapsuleConv2D(2, 4, name="last"),
        rng=rng,
    )
    ONE_TYPE(model)
    fill(model.get_layer("last").conv.kernel, np.s_[:, :, 10:15])
    compact = compacted(model)
    assert compact.get_layer("primary").num_types == 2
    layer = compact.get_layer("capsule")
    kernel, bias = model.get_layer("capsule").get_weights()
    rest = kernel[:, :, np.r_[0:4, 8:12], :10]
    np.testing.assert_array_equal(layer.conv.kernel, rest)
    np.testing.assert_array_equal(layer.conv.bias, bias[:10])


class Scaled(PrimaryCaps):
    """A layer that inherits what `PrimaryCaps` says of its units."""


def test_what_a_layer_says_of_units_does_not_hold_for_subclasses(rng):
    images = keras.Input((7, 7, 2))
    capsules = Scaled(3, 4, 3, 2)(images)
    model = keras.Model(images, ClassCaps(3, 4, name="last")(capsules))
    votes(np.s_[1::3])(randomized(model, rng))
    assert is_left_alone(model)

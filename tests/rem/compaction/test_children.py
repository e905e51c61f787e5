"""Compacted models: children of capsule layers that cast no votes."""

from functools import partial

import keras
import numpy as np
import pytest

from tests.compaction import (
    capsnet,
    compacted,
    fill,
    is_left_alone,
    randomized,
    silence,
)
from tests.tolerance import assert_all_equal
from tfcaps.layers import (
    ClassCaps,
    CompactCaps,
    ConvCaps,
    PrimaryCaps,
    PrimaryMatrixCaps,
)
from tfcaps.routing import DynamicRouting, EMRouting, ScaledDistanceRouting


def test_silent_child_is_left_out(rng):
    model = capsnet(ClassCaps(3, 5, name="class"), rng=rng)
    weight = model.get_layer("class").transformation
    fill(weight, 4)
    compact = compacted(model)
    layer = compact.get_layer("class")
    others = np.delete(np.arange(27), 4)
    assert (layer.grid, layer.origins) == ((3, 3, 3), tuple(others))
    np.testing.assert_array_equal(
        layer.transformation, np.asarray(weight)[others]
    )
    assert compact.count_params() == model.count_params() - 3 * 4 * 5


def test_silent_type_is_left_out_of_primary_caps(rng):
    model = capsnet(ClassCaps(3, 5, name="class"), rng=rng)
    fill(model.get_layer("class").transformation, np.s_[1::3])
    compact = compacted(model)
    layer = compact.get_layer("primary")
    assert layer.num_types == 2
    rest = np.r_[0:4, 8:12]
    kernel, bias = model.get_layer("primary").get_weights()
    np.testing.assert_array_equal(layer.conv.kernel, kernel[..., rest])
    np.testing.assert_array_equal(layer.conv.bias, bias[rest])


def test_silent_type_of_shared_matrices_is_left_out(rng):
    model = capsnet(
        ClassCaps(3, 5, "self_attention", share="type", name="class"), rng=rng
    )
    fill(model.get_layer("class").transformation, 1)
    compact = compacted(model)
    assert compact.get_layer("primary").num_types == 2
    assert compact.get_layer("class").origins == (0, 2)
    bias = np.asarray(model.get_layer("class").bias)
    rest = np.arange(27) % 3 != 1
    np.testing.assert_array_equal(compact.get_layer("class").bias, bias[rest])


def test_flat_children_are_left_out(rng):
    model = capsnet(
        ClassCaps(6, 4, name="hidden"),
        ClassCaps(3, 4, "self_attention", name="class"),
        rng=rng,
    )
    fill(model.get_layer("class").transformation, [0, 3])
    compact = compacted(model)
    layer = compact.get_layer("class")
    assert layer.sources == layer.origins == (1, 2, 4, 5)
    # They compete as parents, so that they stay.
    assert type(compact.get_layer("hidden")) is ClassCaps
    assert compact.get_layer("hidden").num_capsules == 6


def test_zero_type_of_primary_caps_casts_no_votes(rng):
    model = capsnet(ClassCaps(3, 5, name="class"), rng=rng)
    silence(model.get_layer("primary").conv, np.s_[4:8])
    compact = compacted(model)
    assert compact.get_layer("primary").num_types == 2
    assert len(compact.get_layer("class").origins) == 18


def test_constant_type_of_primary_caps_votes(rng):
    model = capsnet(ClassCaps(3, 5, name="class"), rng=rng)
    silence(model.get_layer("primary").conv, np.s_[4:8], bias=0.3)
    assert is_left_alone(model)


def test_half_a_silent_type_stays(rng):
    model = capsnet(ClassCaps(3, 5, name="class"), rng=rng)
    silence(model.get_layer("primary").conv, np.s_[4:6])
    assert is_left_alone(model)


def test_child_type_that_another_layer_needs_stays(rng):
    images = keras.Input((7, 7, 2))
    capsules = PrimaryCaps(3, 4, 3, 2, name="primary")(images)
    first, second = (ClassCaps(3, 4, name=name) for name in "ab")
    model = keras.Model(images, [first(capsules), second(capsules)])
    fill(first.transformation, np.s_[1::3])
    fill(second.transformation, np.s_[2::3])
    compact = compacted(randomized(model, rng))
    assert compact.get_layer("primary").num_types == 3
    assert compact.get_layer("a").sources == compact.get_layer("a").origins
    assert len(compact.get_layer("b").origins) == 18


def test_child_is_left_where_none_votes_but_another_layer_needs_some(rng):
    images = keras.Input((7, 7, 2))
    capsules = PrimaryCaps(3, 4, 3, 2, name="primary")(images)
    first, second = (ClassCaps(3, 4, name=name) for name in "ab")
    model = keras.Model(images, [first(capsules), second(capsules)])
    fill(first.transformation, np.s_[:])
    fill(second.transformation, np.s_[::3])
    compact = compacted(randomized(model, rng))
    assert compact.get_layer("primary").num_types == 2
    assert compact.get_layer("a").origins == (1,)


def test_matrix_capsules_with_dynamic_routing(rng):
    model = capsnet(
        ConvCaps(3, 4, 2, matrix=True, name="conv_caps"),
        ClassCaps(3, 4, matrix=True, name="class"),
        rng=rng,
    )
    fill(model.get_layer("conv_caps").transformation, np.s_[:, :, 0])
    fill(model.get_layer("class").transformation, 7)
    compact = compacted(model)
    assert compact.get_layer("primary").num_types == 2
    assert compact.get_layer("conv_caps").transformation.shape[2] == 2
    assert len(compact.get_layer("class").origins) == 11


@pytest.mark.parametrize(
    "routing",
    [
        DynamicRouting(leaky=True),
        "scaled_distance",
        "self_attention",
        "uniform",
    ],
    ids=["leaky", "scaled_distance", "self_attention", "uniform"],
)
@pytest.mark.parametrize("padding", ["valid", "same"])
def test_silent_types_of_conv_caps_are_left_out(routing, padding, rng):
    model = capsnet(
        ConvCaps(2, 4, 2, 1, padding, routing, name="conv_caps"), rng=rng
    )
    layer = model.get_layer("conv_caps")
    fill(layer.transformation, np.s_[:, :, 1])
    compact = compacted(model)
    assert compact.get_layer("primary").num_types == 2
    left = compact.get_layer("conv_caps")
    np.testing.assert_array_equal(
        left.transformation, np.asarray(layer.transformation)[:, :, [0, 2]]
    )
    if routing == "self_attention":
        rest = np.arange(12) % 3 != 1
        np.testing.assert_array_equal(left.bias, np.asarray(layer.bias)[rest])


def test_zero_types_before_conv_caps_cast_no_votes(rng):
    model = capsnet(ConvCaps(2, 4, 2, name="conv_caps"), rng=rng)
    silence(model.get_layer("primary").conv, np.s_[8:12])
    compact = compacted(model)
    assert compact.get_layer("conv_caps").transformation.shape[2] == 2


EVERY_CHILD_COUNTS = {
    "class-coordinates": partial(
        ClassCaps, 3, 4, matrix=True, coordinates=True, share="type"
    ),
    "class-em": partial(ClassCaps, 3, 4, EMRouting(2, 0.1, 1e-2)),
    "class-regularized": partial(ClassCaps, 3, 4, "regularized"),
    "class-scaled_distance-sample": partial(
        ClassCaps, 3, 4, ScaledDistanceRouting(distance_scale="sample")
    ),
    "conv-em": partial(ConvCaps, 3, 4, 2, routing=EMRouting(2, 0.1, 1e-2)),
    "conv-scaled_distance-sample": partial(
        ConvCaps,
        3,
        4,
        2,
        routing=ScaledDistanceRouting(distance_scale="sample"),
    ),
}


@pytest.mark.parametrize("name", EVERY_CHILD_COUNTS)
def test_children_stay_where_each_counts(name, rng):
    model = capsnet(EVERY_CHILD_COUNTS[name](name="last"), rng=rng)
    types = np.s_[:, :, 1] if name.startswith("conv") else np.s_[1::3]
    fill(model.get_layer("last").transformation, types)
    silence(model.get_layer("primary").conv, np.s_[8:12])
    assert is_left_alone(model)


@pytest.mark.parametrize(
    "make",
    [
        partial(ClassCaps, 3, 4, share="all"),
        partial(ConvCaps, 3, 4, 2, share_types=True),
    ],
    ids=["class_caps", "conv_caps"],
)
def test_zero_types_leave_where_types_share_matrices(make, rng):
    model = capsnet(make(name="last"), rng=rng)
    silence(model.get_layer("primary").conv, np.s_[8:12])
    compact = compacted(model)
    assert compact.get_layer("primary").num_types == 2
    expected = model.get_layer("last").get_weights()
    assert_all_equal(compact.get_layer("last").get_weights(), expected)


def test_children_with_activations_of_their_own_stay(rng):
    images = keras.Input((7, 7, 2))
    poses, activations = PrimaryMatrixCaps(3, 4, 3, 2)(images)
    layer = ClassCaps(3, 4, "scaled_distance", name="class")
    model = keras.Model(images, layer(poses, activations=activations))
    fill(layer.transformation, 4)
    assert is_left_alone(randomized(model, rng))


def test_call_arguments_are_kept(rng):
    images = keras.Input((7, 7, 2))
    capsules = PrimaryCaps(3, 4, 3, 2)(images)
    layer = ClassCaps(3, 4, name="class")
    poses, couplings = layer(capsules, labels=None, return_couplings=True)
    model = keras.Model(images, [poses, couplings])
    fill(layer.transformation, 4)
    compact = compacted(randomized(model, rng))
    assert isinstance(compact.get_layer("class"), CompactCaps)

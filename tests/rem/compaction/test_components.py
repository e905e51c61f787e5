"""Compacted models: components that are zero in all capsules of a layer."""

import keras
import numpy as np
import pytest
from keras import layers

from tests.compaction import capsnet, compacted, fill, randomized, silence
from tfcaps.layers import (
    CapsuleConv2D,
    ClassCaps,
    ConvCaps,
    Length,
    PrimaryCaps,
    Squash,
)


def silence_component(layer, component):
    """Makes a component of primary capsules, or of convolved ones, zero."""
    silence(layer.conv, np.s_[component :: layer.dim])


def test_zero_components_of_children_and_parents_leave(rng):
    model = capsnet(
        ConvCaps(3, 5, 2, name="hidden"),
        ClassCaps(3, 6, name="class"),
        Length(),
        rng=rng,
    )
    silence_component(model.get_layer("primary"), 1)
    hidden, last = model.get_layer("hidden"), model.get_layer("class")
    fill(hidden.transformation, np.s_[..., 2])
    fill(hidden.bias, np.s_[:, 2])
    fill(last.transformation, np.s_[..., [0, 4]])
    fill(last.bias, np.s_[:, [0, 4]])
    compact = compacted(model)
    dims = [compact.get_layer(n).dim for n in ("primary", "hidden", "class")]
    assert dims == [3, 4, 4]
    np.testing.assert_array_equal(
        compact.get_layer("hidden").transformation,
        np.asarray(hidden.transformation)[..., [0, 2, 3], :][..., [0, 1, 3, 4]],
    )


def test_components_of_capsule_convolutions_and_sums_leave(rng):
    images = keras.Input((7, 7, 2))
    start = PrimaryCaps(3, 4, 3, name="primary")(images)
    sides = [CapsuleConv2D(3, 4, name=name)(start) for name in ("a", "b")]
    capsules = Squash()(layers.Add()(sides))
    flat = layers.Reshape((-1, 4))(capsules)
    lengths = Length()(ClassCaps(3, 5, name="class")(flat))
    model = randomized(keras.Model(images, lengths), rng)
    silence_component(model.get_layer("primary"), 0)
    for name, component in (("a", 3), ("b", 3), ("b", 1)):
        conv = model.get_layer(name).conv
        fill(conv.kernel, np.s_[..., component::4])
    compact = compacted(model)
    assert compact.get_layer("primary").dim == 3
    assert compact.get_layer("a").dim == compact.get_layer("b").dim == 3


@pytest.mark.parametrize(
    ("routing", "is_matrix"), [("self_attention", False), (3, True)]
)
def test_components_stay_where_their_number_counts(routing, is_matrix, rng):
    last = ClassCaps(3, 4, routing, matrix=is_matrix, name="class")
    model = capsnet(last, Length(), rng=rng)
    silence_component(model.get_layer("primary"), 1)
    compact = compacted(model)
    assert compact.get_layer("primary").dim == 4
    assert compact.count_params() == model.count_params()


def test_components_of_an_output_stay(rng):
    model = capsnet(rng=rng)
    silence_component(model.get_layer("primary"), 1)
    assert compacted(model).get_layer("primary").dim == 4


def test_a_component_that_is_not_zero_is_part_of_the_length(rng):
    model = capsnet(ClassCaps(3, 5, name="class"), Length(), rng=rng)
    fill(model.get_layer("class").transformation, np.s_[..., 1, :])
    assert compacted(model).get_layer("primary").dim == 4


def test_components_stay_where_only_activations_are_used(rng):
    images = keras.Input((7, 7, 2))
    capsules = PrimaryCaps(3, 4, 3, 2, name="primary")(images)
    layer = ClassCaps(3, 5, name="class")
    _, activations = layer(capsules, return_activations=True)
    model = randomized(keras.Model(images, activations), rng)
    fill(layer.transformation, np.s_[..., 2])
    fill(layer.bias, np.s_[:, 2])
    assert compacted(model).get_layer("class").dim == 4

"""Receptive fields, compared with the pixels whose NaN a child gets."""

import dataclasses
from functools import partial

import keras
import numpy as np
import pytest
from keras import layers as kl
from matplotlib.text import Text

from tests.networks import SMALL_NETWORKS, every_network
from tfcaps import rem, viz
from tfcaps.layers import (
    CapsuleConv2D,
    ClassCaps,
    ConvCaps,
    PrimaryCaps,
    PrimaryMatrixCaps,
)
from tfcaps.routing import EMRouting


def network(side, *middle):
    """Returns a network with these layers between image and ClassCaps."""
    images = keras.Input((*np.broadcast_to(side, 2).tolist(), 2))
    tensors = images
    for layer in middle:
        tensors = layer(tensors)
    return keras.Model(images, ClassCaps(2, 3)(tensors))


def boxes_of_nan(model):
    """Returns the box of each child: where a NaN among pixels makes it NaN."""
    layer = [x for x in model.layers if isinstance(x, ClassCaps)][-1]
    poses = keras.Model(model.input, keras.tree.flatten(layer.input)[0])
    rows, columns, channels = model.input_shape[1:]
    images = np.full((rows + columns, rows, columns, channels), 0.5, "float32")
    images[range(rows), range(rows)] = np.nan
    images[range(rows, rows + columns), :, range(columns)] = np.nan
    seen = np.isnan(keras.ops.convert_to_numpy(poses(images))).any(axis=-1)
    seen = seen.reshape(len(images), -1)
    return np.stack(
        [
            end
            for part in (seen[:rows], seen[rows:])
            for end in (
                part.argmax(axis=0),
                (len(part) - part[::-1].argmax(axis=0)) * part.any(axis=0),
            )
        ],
        axis=-1,
    )[:, [0, 2, 1, 3]]


def assert_seen_is_the_box(model):
    """Compares the fields of all children with what they see."""
    fields = rem.receptive_fields(model)
    np.testing.assert_array_equal(fields.boxes, boxes_of_nan(model))
    return fields


PRIMARY = partial(PrimaryCaps, 2, 4)
SAME = partial(PrimaryCaps, 2, 4, padding="same")
CONV = partial(kl.Conv2D, 3)
CONV_SAME = partial(kl.Conv2D, 3, padding="same")
POINTWISE = kl.BatchNormalization(), kl.Activation("sigmoid"), kl.LeakyReLU()
STACKS = {
    "same_strides": ((11, 12), CONV_SAME(3, 2), SAME(3, 2)),
    "even_kernels": (12, CONV_SAME(4), SAME(2, 2)),
    "rows_unlike_columns": ((9, 13), CONV((2, 5)), PRIMARY((3, 1))),
    "dilation": (15, CONV(3, dilation_rate=3), *POINTWISE, PRIMARY(3, 2)),
    "average_pooling": (
        13,
        kl.AveragePooling2D(3, 2, padding="same"),
        PRIMARY(3),
    ),
    "depthwise": (
        12,
        kl.SeparableConv2D(8, 3),
        kl.DepthwiseConv2D(3, padding="same"),
        PRIMARY(3, 2, depthwise=True),
    ),
    "layer_norm": (9, CONV(3), kl.LayerNormalization(), PRIMARY(3)),
    "padding": (9, kl.ZeroPadding2D(((3, 1), (0, 2))), PRIMARY(3, 2)),
    "only_padding": (5, kl.ZeroPadding2D(4), PRIMARY(3, 5)),
    "up_sampling": (5, kl.UpSampling2D(3), PRIMARY(2, 2)),
    "bilinear": (
        6,
        kl.UpSampling2D(2, interpolation="bilinear"),
        PRIMARY(3, 3),
    ),
    "conv_caps": (12, PRIMARY(3), ConvCaps(2, 4, 3, 2, padding="same")),
    "capsule_conv": (13, PRIMARY(3), CapsuleConv2D(2, 4, strides=2)),
    "model_inside": (
        12,
        keras.Sequential([keras.Input((12, 12, 2)), CONV(3)]),
        PRIMARY(5, 2),
    ),
    "dense": ((4, 5), kl.Flatten(), kl.Dense(6), kl.Reshape((1, 1, 1, 6))),
    "dense_of_each": (5, kl.Dense(4), PRIMARY(3)),
    "global_pooling": (
        6,
        kl.Conv2D(4, 3),
        kl.GlobalAveragePooling2D(),
        kl.Reshape((2, 2)),
    ),
    "group_norm": (8, kl.Conv2D(4, 3), kl.GroupNormalization(2), PRIMARY(2, 2)),
}


@pytest.mark.parametrize("name", STACKS)
def test_fields_are_what_children_see(name):
    fields = assert_seen_is_the_box(network(*STACKS[name]))
    assert not fields.unknown


def test_a_maximum_sees_what_a_mean_sees():
    """It may be of other pixels than those that are NaN."""
    most, mean = (
        rem.receptive_fields(network(16, kl.Conv2D(3, 3), pool(2), PRIMARY(3)))
        for pool in (kl.MaxPooling2D, kl.AveragePooling2D)
    )
    assert not most.unknown
    np.testing.assert_array_equal(most.boxes, mean.boxes)
    np.testing.assert_array_equal(most.centres, mean.centres)


def test_centres_are_those_of_whole_windows_at_the_border_too():
    stack = (kl.Conv2D(3, 5, padding="same"), PRIMARY(3, padding="same"))
    fields = rem.receptive_fields(network(9, *stack))
    rows, columns = np.meshgrid(range(9), range(9), indexing="ij")
    np.testing.assert_array_equal(
        fields.centres, np.stack([rows, columns], axis=-1)
    )
    np.testing.assert_array_equal(fields.boxes[0], [0, 0, 4, 4])
    assert fields.size == (7, 7)


def test_branches_are_united():
    images = keras.Input((12, 12, 2))
    narrow = kl.Conv2D(4, 1)(images)
    wide = kl.Conv2D(4, 5, padding="same")(images)
    tall = kl.Conv2D(4, (7, 3), padding="same")(images)
    joined = kl.Concatenate()([kl.Add()([narrow, wide]), narrow + tall])
    children = PRIMARY(1, 2)(joined)
    model = keras.Model(images, ClassCaps(2, 3)(children))
    fields = assert_seen_is_the_box(model)
    assert fields.size == (7, 5)
    np.testing.assert_array_equal(fields.centres[:, 0, 0], 2 * np.arange(6))


def test_children_of_flattened_maps_keep_their_own_fields():
    images = keras.Input((9, 9, 2))
    first = PRIMARY(3, 2)(images)
    second = CapsuleConv2D(2, 4, 3, padding="valid")(first)
    children = kl.Concatenate(axis=1)(
        [kl.Reshape((-1, 4))(first), kl.Reshape((-1, 4))(second)]
    )
    model = keras.Model(images, ClassCaps(2, 3)(children))
    fields = assert_seen_is_the_box(model)
    assert fields.grid == (1, 1, 40)
    np.testing.assert_array_equal(fields.centres, [[[4.0, 4.0]]])
    np.testing.assert_array_equal(
        fields.child_centres[[3, 39]], [[1, 3], [5, 5]]
    )
    assert fields.size == (7, 7) and fields.is_local


def test_unknown_layer_sees_everything_and_no_child_has_a_place():
    turned = kl.Permute((2, 1, 3), name="turned")
    model = network(9, turned, PRIMARY(3, 2))
    fields = rem.receptive_fields(model)
    assert fields.unknown == ("turned",)
    assert fields.size == (9, 9)
    assert not fields.is_local and fields.regions is fields
    explained = rem.explain(model, np.ones((1, 9, 9, 2), "float32"))
    assert np.isnan(fields.child_centres).all()
    assert not explained.trees.has_places
    [record] = explained.records
    assert {leaf["place"] for leaf in record["leaves"]} <= {None}
    explained = dataclasses.replace(explained, images=explained.images[..., :1])
    page = viz.tree_fields(explained)
    said = " ".join(text.get_text() for text in page.findobj(Text))
    assert "its place is not known" in said.replace("\n", " ")


def test_grid_that_says_nothing_about_places_is_spread_over_the_image():
    stack = (kl.Flatten(), kl.Dense(32), kl.Reshape((2, 4, 1, 4)))
    fields = rem.receptive_fields(network((6, 8), *stack))
    assert not fields.unknown and fields.size == (6, 8)
    np.testing.assert_array_equal(fields.centres[:, 0, 0], [1, 4])
    np.testing.assert_array_equal(fields.centres[0, :, 1], [0.5, 2.5, 4.5, 6.5])


@pytest.mark.parametrize("iterations", [1, 2])
def test_windows_that_compete_widen_with_each_further_iteration(iterations):
    images = keras.Input((11, 11, 1))
    routing = EMRouting(iterations, epsilon=0.1)
    first = PrimaryMatrixCaps(2, 4, name="first")(images)
    poses, activations = ConvCaps(2, 4, 3, 2, routing=routing, matrix=True)(
        *first, return_activations=True
    )
    last = ClassCaps(2, 4, routing=routing, matrix=True)
    model = keras.Model(images, last(poses, activations))
    fields = assert_seen_is_the_box(model)
    assert fields.size == (3 + 4 * (iterations - 1),) * 2


@every_network
def test_every_network_has_known_fields(name):
    model = SMALL_NETWORKS[name]()
    fields = rem.receptive_fields(model)
    assert not fields.unknown and (fields.boxes >= 0).all()
    if name in ("backbone_dr_capsnet", "multilayer_capsnet"):
        assert_seen_is_the_box(model)
        assert fields.is_local == (fields.grid[:2] != (1, 1))


def test_what_has_no_fields_is_an_error():
    children = keras.Input((6, 4))
    with pytest.raises(ValueError, match=r"must take images .*\(None, 6, 4\)"):
        rem.receptive_fields(keras.Model(children, ClassCaps(2, 3)(children)))


def test_a_gate_of_the_whole_map_moves_no_centre():
    images = keras.Input((16, 16, 1))
    maps = kl.Conv2D(4, 3, 2, "same")(images)
    gate = kl.GlobalAveragePooling2D(keepdims=True)(maps)
    gate = kl.Conv2D(4, 1, activation="sigmoid")(gate)
    plain, gated = (
        rem.receptive_fields(
            keras.Model(images, ClassCaps(3, 4)(PRIMARY(1)(seen)))
        )
        for seen in (maps, kl.Multiply()([maps, gate]))
    )
    assert not gated.unknown and gated.size == (16, 16)
    np.testing.assert_array_equal(gated.centres, plain.centres)

"""Compacted models: channels of convolutions, which go and which stay."""

from functools import partial

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
from tests.tolerance import SUMS
from tfcaps import rem
from tfcaps.layers import ClassCaps, PrimaryMatrixCaps, Squash


def convs(*between, rng, activation="relu", **second):
    """Returns two convolutions, layers between them on maps of 4x4x4."""
    images = keras.Input((6, 6, 2))
    first = layers.Conv2D(4, 3, activation=activation, name="first")
    features = first(images)
    for layer in between:
        features = layer(features)
    outputs = layers.Conv2D(3, 3, name="second", **second)(features)
    return randomized(keras.Model(images, outputs), rng)


def test_channel_that_feeds_nothing_is_removed(rng):
    model = convs(rng=rng)
    fill(model.get_layer("second").kernel, np.s_[:, :, 1])
    compact = compacted(model)
    rest = [0, 2, 3]
    kernel, bias = model.get_layer("first").get_weights()
    first, second = (compact.get_layer(name) for name in ("first", "second"))
    np.testing.assert_array_equal(first.kernel, kernel[..., rest])
    np.testing.assert_array_equal(first.bias, bias[rest])
    np.testing.assert_array_equal(
        second.kernel, model.get_layer("second").get_weights()[0][:, :, rest]
    )


def test_channel_that_feeds_removed_channels_is_removed(rng):
    model = convs(layers.Conv2D(4, 1, name="middle"), rng=rng)
    fill(model.get_layer("second").kernel, np.s_[:, :, 2])
    middle = model.get_layer("middle").kernel
    fill(middle, np.s_[:, :, 1, [0, 1, 3]])
    compact = compacted(model)
    assert filters(compact) == filters(compact, "middle") == 3


@pytest.mark.parametrize("use_bias", [False, True])
def test_constant_channel_becomes_a_bias(use_bias, rng):
    model = convs(rng=rng, use_bias=use_bias)
    silence(model.get_layer("first"), 1, bias=0.7)
    compact = compacted(model)
    assert filters(compact) == 3
    second = compact.get_layer("second")
    kernel, *bias = model.get_layer("second").get_weights()
    expected = 0.7 * kernel[:, :, 1].sum(axis=(0, 1)) + sum(bias)
    assert second.use_bias
    np.testing.assert_allclose(second.bias, expected, atol=SUMS)


def test_constant_channel_stays_where_zeros_surround_it(rng):
    model = convs(rng=rng, padding="same")
    silence(model.get_layer("first"), 1, bias=0.7)
    assert is_left_alone(model)


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_zero_channel_is_removed_and_needs_no_bias(padding, rng):
    model = convs(rng=rng, padding=padding, use_bias=False)
    silence(model.get_layer("first"), 1, bias=-0.7)  # before the ReLU
    compact = compacted(model)
    assert filters(compact) == 3
    assert not compact.get_layer("second").use_bias


def test_channel_of_a_constant_channel_is_constant_too(rng):
    model = convs(layers.Conv2D(4, 1, name="middle"), rng=rng)
    silence(model.get_layer("first"), 1, bias=0.7)
    fill(model.get_layer("middle").kernel, np.s_[:, :, [0, 2, 3], 2])
    compact = compacted(model)
    assert filters(compact) == filters(compact, "middle") == 3


def test_channel_of_a_constant_and_a_varying_one_varies(rng):
    model = convs(layers.Conv2D(4, 1, name="middle"), rng=rng)
    silence(model.get_layer("first"), 1, bias=0.7)
    fill(model.get_layer("middle").kernel, np.s_[:, :, [0, 3], 2])
    assert filters(compacted(model), "middle") == 4


def test_padding_makes_a_constant_channel_vary(rng):
    middle = layers.Conv2D(4, 3, padding="same", name="middle")
    model = convs(middle, rng=rng)
    silence(model.get_layer("first"), 1, bias=0.7)
    fill(middle.kernel, np.s_[:, :, [0, 2, 3], 2])
    assert is_left_alone(model)


@pytest.mark.parametrize(
    "activation",
    ["linear", "elu", "gelu", "leaky_relu", "relu6", "selu", "sigmoid"]
    + ["hard_sigmoid", "silu", "softplus", "swish", "tanh"],
)
def test_elementwise_activations_keep_channels_apart(activation, rng):
    model = convs(rng=rng, activation=activation)
    silence(model.get_layer("first"), 1, bias=-0.7)
    fill(model.get_layer("second").kernel, np.s_[:, :, 3])
    assert filters(compacted(model)) == 2


@pytest.mark.parametrize("as_layer", [False, True], ids=["setting", "layer"])
def test_softmax_needs_all_channels(as_layer, rng):
    between = [layers.Activation("softmax")] if as_layer else []
    activation = None if as_layer else "softmax"
    model = convs(*between, rng=rng, activation=activation)
    fill(model.get_layer("second").kernel, np.s_[:, :, 1])
    assert is_left_alone(model)


def test_layers_of_single_channels_pass_removal_on(rng):
    model = convs(
        layers.Activation("sigmoid"),
        layers.Dropout(0.5),
        layers.ELU(),
        layers.Identity(),
        layers.LeakyReLU(0.1),
        layers.ReLU(threshold=0.1),
        rng=rng,
        activation=None,
    )
    silence(model.get_layer("first"), 1, bias=-0.7)
    fill(model.get_layer("second").kernel, np.s_[:, :, 3])
    assert filters(compacted(model)) == 2


@pytest.mark.parametrize(
    ("norm", "left"),
    [
        (partial(layers.BatchNormalization), 2),
        (partial(layers.BatchNormalization, center=False), 2),
        (partial(layers.BatchNormalization, axis=1), 4),
        (partial(layers.GroupNormalization, groups=-1), 2),
        (partial(layers.GroupNormalization, groups=4), 2),
        (partial(layers.GroupNormalization, groups=2), 4),
        (partial(layers.GroupNormalization, groups=-1, axis=1), 4),
        (partial(layers.LayerNormalization), 4),
    ],
    ids=["batch", "batch-scale", "batch-rows", "instance", "as_many_groups"]
    + ["groups", "instance-rows", "layer"],
)
def test_normalization_of_channels_loses_some(norm, left, rng):
    model = convs(norm(), rng=rng)
    silence(model.get_layer("first"), 1, bias=0.7)
    fill(model.get_layer("second").kernel, np.s_[:, :, 3])
    # Constant channels are rounded, and divided by the root of 1e-3.
    assert filters(compacted(model, atol=1e-5)) == left


def test_channel_that_one_of_two_layers_needs_stays(rng):
    images = keras.Input((7, 7, 2))
    features = layers.Conv2D(4, 3, activation="relu", name="first")(images)
    ends = [layers.Conv2D(2, 3, name="end"), layers.Conv2D(1, 1, name="other")]
    outputs = [ends[0](layers.ELU()(features)), ends[1](features)]
    model = keras.Model(images, outputs)
    fill(ends[0].kernel, np.s_[:, :, [0, 1]])
    fill(ends[1].kernel, np.s_[:, :, [1, 2]])
    assert filters(compacted(randomized(model, rng))) == 3


def test_constant_channel_that_one_of_two_layers_pads_stays(rng):
    images = keras.Input((7, 7, 2))
    features = layers.Conv2D(4, 3, activation="relu", name="first")(images)
    ends = [layers.Conv2D(2, 3, padding=p) for p in ("valid", "same")]
    model = keras.Model(images, [end(features) for end in ends])
    randomized(model, rng)
    silence(model.get_layer("first"), 1, bias=0.7)
    assert is_left_alone(model)


def test_channels_of_the_image_and_of_outputs_stay(rng):
    model = convs(rng=rng)
    fill(model.get_layer("first").kernel, np.s_[:, :, 1])
    silence(model.get_layer("second"), 2)
    assert is_left_alone(model)


def test_layer_that_is_called_twice_stays(rng):
    images = keras.Input((7, 7, 2))
    shared = layers.Conv2D(2, 1, name="shared")
    last = layers.Conv2D(2, 1, name="last")
    model = keras.Model(images, last(shared(shared(images))))
    fill(last.kernel, np.s_[:, :, 1])
    fill(shared.kernel, np.s_[:, :, 1])
    assert is_left_alone(randomized(model, rng))


class Backwards(layers.Conv2D):
    """A convolution that reads its channels in the other order."""

    def call(self, inputs):
        return super().call(inputs[..., ::-1])


def test_subclass_is_left_alone(rng):
    images = keras.Input((7, 7, 2))
    features = layers.Conv2D(4, 3, name="first")(images)
    last = Backwards(3, 3)
    model = keras.Model(images, last(features))
    fill(last.kernel, np.s_[:, :, 0])
    assert is_left_alone(randomized(model, rng))


@pytest.mark.parametrize(
    "between",
    [
        lambda x: 2.0 * x + 1.0,
        lambda x: layers.Add()([x, x[:, ::-1]]),
        lambda x: layers.Concatenate(2)([x, x]),
        layers.MaxPooling2D(2, 1),
        layers.Conv2D(4, 3, groups=2),
        layers.Reshape((5, 5, 4)),
        Squash(),
    ],
    ids=["operation", "add", "concatenate", "pool", "groups", "reshape"]
    + ["squash"],
)
def test_other_layers_need_every_channel(between, rng):
    images = keras.Input((7, 7, 2))
    features = between(layers.Conv2D(4, 3, name="first")(images))
    last = layers.Conv2D(3, 3, name="last")
    model = keras.Model(images, last(features))
    fill(last.kernel, np.s_[:, :, 1])
    assert is_left_alone(randomized(model, rng))


def residual(rng, joined):
    """Returns two convolutions of one map, joined and read by a third."""
    images = keras.Input((7, 7, 2))
    features = layers.Conv2D(4, 3, activation="relu", name="first")(images)
    sides = [
        layers.Conv2D(4, 1, name=name, padding="same")(features)
        for name in ("left", "right")
    ]
    last = layers.Conv2D(3, 3, name="last")
    return randomized(keras.Model(images, last(joined(sides))), rng)


def test_channel_of_a_sum_is_removed_from_all_that_is_added(rng):
    model = residual(rng, layers.Add())
    fill(model.get_layer("last").kernel, np.s_[:, :, 1])
    compact = compacted(model)
    assert filters(compact, "left") == filters(compact, "right") == 3
    assert compact.get_layer("last").kernel.shape[2] == 3


def test_channel_of_a_sum_stays_if_one_side_varies(rng):
    model = residual(rng, layers.Add())
    silence(model.get_layer("left"), 1, bias=0.0)
    compact = compacted(model)
    assert filters(compact, "left") == filters(compact, "right") == 4
    silence(model.get_layer("right"), 1, bias=0.7)
    compact = compacted(model)
    assert filters(compact, "left") == filters(compact, "right") == 3


def test_channels_are_removed_before_they_are_joined(rng):
    model = residual(rng, layers.Concatenate())
    silence(model.get_layer("left"), 1, bias=0.7)
    fill(model.get_layer("last").kernel, np.s_[:, :, [4, 6]])
    compact = compacted(model)
    assert filters(compact, "left") == 3
    assert filters(compact, "right") == 2


def test_channels_first_is_left_alone():
    images = keras.Input((2, 7, 7))
    first, last = (
        layers.Conv2D(4, 3, data_format="channels_first", name=name)
        for name in ("first", "last")
    )
    model = keras.Model(images, last(first(images)))
    fill(last.kernel, np.s_[:, :, 1])
    # CPUs do not run it.
    assert rem.compact(model).count_params() == model.count_params()


def test_layer_that_is_always_in_training_is_left_alone(rng):
    images = keras.Input((7, 7, 2))
    first, last = (layers.Conv2D(3, 3, name=name) for name in ("first", "last"))
    features = layers.BatchNormalization()(first(images), training=True)
    model = randomized(keras.Model(images, last(features)), rng)
    silence(first, 1, bias=0.7)
    assert is_left_alone(model)


def test_inputs_may_feed_nothing_or_be_outputs(rng):
    images, other = keras.Input((7, 7, 2)), keras.Input((3,))
    last = layers.Conv2D(3, 3)
    model = keras.Model([images, other], [last(images), images, other])
    assert is_left_alone(randomized(model, rng))


def test_layer_that_first_took_another_shape(rng):
    activation = layers.Activation("sigmoid")
    activation(keras.Input((5,)))
    model = convs(activation, rng=rng, activation=None)
    silence(model.get_layer("first"), 1, bias=0.0)
    assert filters(compacted(model)) == 3
    layer = ClassCaps(3, 4, name="class")
    layer(keras.Input((27, 4)))
    model = capsnet(layer, rng=rng)
    fill(layer.transformation, 4)
    assert compacted(model).get_layer("class").grid == (3, 3, 3)


def test_constant_channels_become_biases_of_both_parts_of_matrix_caps(rng):
    images = keras.Input((7, 7, 2))
    features = layers.Conv2D(4, 3, activation="relu", name="first")(images)
    primary = PrimaryMatrixCaps(2, 4, 3, name="primary")
    model = randomized(keras.Model(images, list(primary(features))), rng)
    silence(model.get_layer("first"), 1, bias=0.7)
    fill(primary.pose_conv.kernel, np.s_[:, :, 2])
    fill(primary.activation_conv.kernel, np.s_[:, :, [2, 3]])
    compact = compacted(model)
    assert filters(compact) == 2
    assert compact.get_layer("primary").num_types == 2

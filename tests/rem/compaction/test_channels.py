"""Compacted models: channels of convolutions, which go and which stay."""

import keras
import numpy as np
import pytest
from keras import layers

from tests.compaction import compacted, fill, filters, randomized, silence
from tfcaps import rem
from tfcaps.layers import PrimaryMatrixCaps, Squash


def convs(*between, rng, activation="relu", **second):
    """Returns two convolutions, layers between them on maps of 4x4x4."""
    images = keras.Input((6, 6, 2))
    first = layers.Conv2D(4, 3, activation=activation, name="first")
    features = first(images)
    for layer in between:
        features = layer(features)
    outputs = layers.Conv2D(3, 3, name="second", **second)(features)
    return randomized(keras.Model(images, outputs), rng)


def unread(*channels):
    """Returns what makes the second convolution not read channels."""
    at = np.s_[:, :, list(channels)]
    return lambda model: fill(model.get_layer("second").kernel, at)


def constant(channel, bias=0.0):
    """Returns what makes a channel constant before its activation."""
    return lambda model: silence(model.get_layer("first"), channel, bias)


def middle(where):
    """Returns what fills the kernel of the middle convolution."""
    return lambda model: fill(model.get_layer("middle").kernel, where)


def ends(model):
    """Leaves a channel of the image unread, and makes one of outputs zero."""
    fill(model.get_layer("first").kernel, np.s_[:, :, 1])
    silence(model.get_layer("second"), 2)


def conv(kind=layers.Conv2D, **settings):
    return kind(4, **{"kernel_size": 1, "name": "middle", **settings})


class Backwards(layers.Conv2D):
    """A convolution that reads its channels in the other order."""

    def call(self, inputs):
        return super().call(inputs[..., ::-1])


def twice(features):
    shared = conv()
    return shared(shared(features))


def always_in_training(features):
    return layers.BatchNormalization()(features, training=True)


ELEMENTWISE = ["linear", "elu", "gelu", "leaky_relu", "relu6", "selu", "silu"]
ELEMENTWISE += ["sigmoid", "hard_sigmoid", "softplus", "swish", "tanh"]
LEAKY = [layers.Dropout(0.5), layers.ELU(), layers.Identity()]
LEAKY += [layers.LeakyReLU(0.1), layers.ReLU(threshold=0.1)]
LEAKY += [layers.Activation("sigmoid")]
ONE, TWO = [unread(1)], [constant(1, -0.7), unread(3)]
FEEDS_REMOVED = [unread(2), middle(np.s_[:, :, 1, [0, 1, 3]])]
# Layers between two convolutions, settings, what is silenced, and how many
# channels of the first one are left of four.
CHANNELS = {
    "constant": ([], {}, [constant(1, 0.7)], 3),
    "constant-same": ([], {"padding": "same"}, [constant(1, 0.7)], 4),
    "constant-unbiased": ([], {"use_bias": False}, [constant(1, 0.7)], 4),
    "zero-same": ([], {"padding": "same"}, [constant(1, -0.7)], 3),
    "zero-unbiased": ([], {"use_bias": False}, [constant(1, -0.7)], 3),
    "softmax": ([], {"activation": "softmax"}, ONE, 4),
    "softmax_layer": ([layers.Activation("softmax")], {}, ONE, 4),
    **{name: ([], {"activation": name}, TWO, 2) for name in ELEMENTWISE},
    "single_channels": (LEAKY, {"activation": None}, TWO, 2),
    "batch": ([layers.BatchNormalization()], {}, TWO, 2),
    "batch-scale": ([layers.BatchNormalization(center=False)], {}, TWO, 2),
    "batch-rows": ([layers.BatchNormalization(axis=1)], {}, TWO, 4),
    "instance": ([layers.GroupNormalization(-1)], {}, TWO, 2),
    "as_many_groups": ([layers.GroupNormalization(4)], {}, TWO, 2),
    "groups": ([layers.GroupNormalization(2)], {}, TWO, 4),
    "instance-rows": ([layers.GroupNormalization(-1, axis=1)], {}, TWO, 4),
    "layer": ([layers.LayerNormalization()], {}, TWO, 4),
    "operation": ([lambda x: 2.0 * x + 1.0], {}, ONE, 4),
    "add": ([lambda x: layers.Add()([x, x[:, ::-1]])], {}, ONE, 4),
    "concatenate": ([lambda x: layers.Concatenate(2)([x, x])], {}, ONE, 4),
    "pool": ([layers.MaxPooling2D(2, 1)], {}, ONE, 4),
    "conv_groups": ([conv(groups=2)], {}, ONE, 4),
    "reshape": ([layers.Reshape((4, 4, 4))], {}, ONE, 4),
    "squash": ([Squash()], {}, ONE, 4),
    "feeds_removed": ([conv()], {}, FEEDS_REMOVED, 3),
    "ends": ([], {}, [ends], 4),
    "twice": ([twice], {}, [unread(1), middle(np.s_[:, :, 1])], 4),
    "subclass": ([conv(Backwards)], {}, [middle(np.s_[:, :, 0])], 4),
    "in_training": ([always_in_training], {}, [constant(1)], 4),
}


@pytest.mark.parametrize("name", CHANNELS)
def test_channels_are_left_that_something_needs(name, rng):
    between, settings, silenced, left = CHANNELS[name]
    model = convs(*between, rng=rng, **settings)
    for silence_some in silenced:
        silence_some(model)
    # Constant channels are rounded, and divided by the root of 1e-3.
    compact = compacted(model, atol=1e-5)
    assert filters(compact) == left
    if left == 4:
        assert compact.count_params() == model.count_params()
    elif between and between[0].name == "middle":
        assert filters(compact, "middle") == left


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_constant_channel_stays_that_one_of_two_layers_pads(padding, rng):
    images = keras.Input((7, 7, 2))
    features = layers.Conv2D(4, 3, activation="relu", name="first")(images)
    ends = [layers.Conv2D(2, 3, padding=p) for p in ("valid", padding)]
    model = keras.Model(images, [end(features) for end in ends])
    silence(randomized(model, rng).get_layer("first"), 1, bias=0.7)
    assert filters(compacted(model)) == (3 if padding == "valid" else 4)


def test_channel_that_one_of_two_layers_needs_stays(rng):
    images = keras.Input((7, 7, 2))
    features = layers.Conv2D(4, 3, activation="relu", name="first")(images)
    ends = [layers.Conv2D(2, 3, name="end"), layers.Conv2D(1, 1, name="other")]
    outputs = [ends[0](layers.ELU()(features)), ends[1](features)]
    model = keras.Model(images, outputs)
    fill(ends[0].kernel, np.s_[:, :, [0, 1]])
    fill(ends[1].kernel, np.s_[:, :, [1, 2]])
    assert filters(compacted(randomized(model, rng))) == 3


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


def test_channel_of_a_sum_leaves_all_that_is_added_or_stays(rng):
    model = residual(rng, layers.Add())
    silence(model.get_layer("left"), 1)
    for also, left in (
        (lambda: None, 4),  # the right side varies
        (lambda: silence(model.get_layer("right"), 1, bias=0.7), 3),
        (lambda: fill(model.get_layer("last").kernel, np.s_[:, :, 2]), 2),
    ):
        also()
        compact = compacted(model)
        assert filters(compact, "left") == filters(compact, "right") == left
        assert compact.get_layer("last").kernel.shape[2] == left


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


def test_constant_channels_become_biases_of_both_parts_of_matrix_caps(rng):
    images = keras.Input((7, 7, 2))
    features = layers.Conv2D(4, 3, activation="relu", name="first")(images)
    primary = PrimaryMatrixCaps(2, 4, name="primary")
    model = randomized(keras.Model(images, list(primary(features))), rng)
    silence(model.get_layer("first"), 1, bias=0.7)
    fill(primary.pose_conv.kernel, np.s_[:, :, 2])
    assert filters(compacted(model)) == 3
    fill(primary.activation_conv.kernel, np.s_[:, :, [2, 3]])
    compact = compacted(model)
    assert filters(compact) == 2
    assert compact.get_layer("primary").num_types == 2

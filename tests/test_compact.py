"""Compacted models: the same outputs with fewer weights, rule by rule."""

from functools import partial

import keras
import numpy as np
import pytest
from keras import layers

import tfcaps
from tests.networks import SMALL_NETWORKS, tiny_capsnet
from tfcaps import rem
from tfcaps.layers import (
    CapsuleConv2D,
    ClassCaps,
    CompactCaps,
    ConvCaps,
    PrimaryCaps,
    PrimaryMatrixCaps,
    Squash,
)
from tfcaps.models import with_decoder
from tfcaps.rem.targets import DEFAULT_TARGETS, target_variables
from tfcaps.routing import DynamicRouting, EMRouting, ScaledDistanceRouting

# Variables that start as constants, which would hide what is mixed up.
CONSTANT = ("bias", "beta", "gamma", "moving_mean", "moving_variance")


def randomized(model, rng):
    """Gives the model random biases and statistics."""
    for weight in model.weights:
        if weight.name in CONSTANT:
            weight.assign(rng.uniform(0.2, 0.6, weight.shape))
    return model


def fill(variable, where, value=0.0):
    array = np.array(variable)
    array[where] = value
    variable.assign(array)


def silence(layer, units, bias=0.0):
    """Makes channels of a convolution constant before its activation."""
    fill(layer.kernel, np.s_[..., units])
    fill(layer.bias, units, bias)


def sharpen(model, factor):
    """Makes votes longer, so that couplings differ from the uniform ones."""
    transformation = model.get_layer("class_caps").transformation
    transformation.assign(factor * transformation)


def prune_units(model, share, rng):
    """Zeroes output channels of kernels, and children of transformations."""
    for variable in target_variables(model.variables, DEFAULT_TARGETS):
        is_kernel = variable.name == "kernel"
        shape = variable.shape
        mask = rng.random(shape[-2:] if is_kernel else shape[:-3]) >= share
        if not is_kernel:
            mask = mask[..., None, None, None]
        variable.assign(np.array(variable) * mask)


def inputs_of(model, count=4):
    rng = np.random.default_rng(1)
    shapes = [tuple(tensor.shape[1:]) for tensor in model.inputs]
    arrays = [rng.random((count, *s), dtype=np.float32) for s in shapes]
    return arrays if arrays[1:] else arrays[0]


def compacted(model, atol=1e-6):
    """Returns the compacted model, after a look at its outputs."""
    compact = rem.compact(model)
    inputs = inputs_of(model)
    expected = keras.tree.flatten(model(inputs))
    outputs = keras.tree.flatten(compact(inputs))
    for output, wanted in zip(outputs, expected, strict=True):
        assert np.any(wanted)
        np.testing.assert_allclose(output, wanted, atol=atol)
    return compact


def assert_same(outputs, expected):
    """Compares dicts of outputs; those of EM round more than 1e-6."""
    assert list(outputs) == list(expected)
    for name, wanted in expected.items():
        np.testing.assert_allclose(outputs[name], wanted, 1e-5, 1e-6)


def is_left_alone(model):
    return compacted(model).count_params() == model.count_params()


def filters(model, name="first"):
    return model.get_layer(name).filters


def convs(*between, rng, activation="relu", **second):
    """Returns two convolutions, layers between them on maps of 4x4x4."""
    images = keras.Input((6, 6, 2))
    first = layers.Conv2D(4, 3, activation=activation, name="first")
    features = first(images)
    for layer in between:
        features = layer(features)
    outputs = layers.Conv2D(3, 3, name="second", **second)(features)
    return randomized(keras.Model(images, outputs), rng)


def capsnet(*parents, rng):
    """Returns PrimaryCaps of three types and the layers given after them."""
    images = keras.Input((7, 7, 2))
    capsules = PrimaryCaps(3, 4, 3, 2, name="primary")(images)
    for layer in parents:
        capsules = layer(capsules)
    return randomized(keras.Model(images, capsules), rng)


def deep_capsnet(rng, **primary):
    """Returns a convolution, depthwise PrimaryCaps and ClassCaps."""
    images = keras.Input((7, 7, 2))
    features = layers.Conv2D(12, 3, activation="relu", name="first")(images)
    capsules = PrimaryCaps(
        3, 4, 3, 2, depthwise=True, name="primary", **primary
    )(features)
    poses = ClassCaps(3, 5, name="class")(capsules)
    return randomized(keras.Model(images, poses), rng)


@pytest.fixture(scope="module")
def pruned():
    """Returns a function: a pruned network, what it was, compacted, images."""
    known = {}

    def get(name):
        if name not in known:
            keras.utils.set_random_seed(0)
            rng = np.random.default_rng(0)
            model = randomized(SMALL_NETWORKS[name](), rng)
            prune_units(model, 0.5, rng)
            if name != "em_capsnet":
                sharpen(model, 5.0)
            before = [np.array(weight) for weight in model.weights]
            known[name] = model, before, rem.compact(model), inputs_of(model)
        return known[name]

    return get


@pytest.mark.parametrize("name", SMALL_NETWORKS)
def test_network_shows_the_same_with_fewer_parameters(name, pruned):
    model, _, compact, images = pruned(name)
    assert compact.name == model.name
    assert compact.count_params() < model.count_params()
    expected = rem.capsule_outputs(model)(images)
    outputs = rem.capsule_outputs(compact)(images)
    assert_same(outputs, expected)


@pytest.mark.parametrize("name", SMALL_NETWORKS)
def test_network_is_explained_in_the_same_way(name, pruned):
    model, _, compact, images = pruned(name)
    expected = rem.explanation(model)(images)
    outputs = rem.explanation(compact)(images)
    assert_same(outputs, expected)


@pytest.mark.parametrize("name", SMALL_NETWORKS)
def test_compacted_network_can_be_saved(name, pruned, tmp_path):
    *_, compact, images = pruned(name)
    compact.save(tmp_path / "compact.keras")
    loaded = keras.models.load_model(tmp_path / "compact.keras")
    assert loaded.count_params() == compact.count_params()
    np.testing.assert_allclose(loaded(images), compact(images), atol=1e-6)


@pytest.mark.parametrize("name", SMALL_NETWORKS)
def test_weights_of_the_network_stay_its_own(name, pruned):
    model, before, compact, _ = pruned(name)
    ours = {id(weight) for weight in model.weights}
    assert ours.isdisjoint(id(weight) for weight in compact.weights)
    for weight, array in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight, array)


@pytest.mark.parametrize("name", SMALL_NETWORKS)
def test_nothing_pruned_is_nothing_removed(name):
    model = SMALL_NETWORKS[name]()
    assert rem.compact(model).count_params() == model.count_params()


@pytest.mark.parametrize(
    "name", ["dr_capsnet", "em_capsnet", "gamma_capsnet", "multilayer_capsnet"]
)
def test_everything_pruned_is_still_a_network(name, rng):
    model = randomized(SMALL_NETWORKS[name](), rng)
    prune_units(model, 1.0, rng)
    compact = compacted(model)
    assert all(0 not in weight.shape for weight in compact.weights)
    images = inputs_of(model)
    expected = rem.capsule_outputs(model)(images)["couplings"]
    couplings = rem.capsule_outputs(compact)(images)["couplings"]
    np.testing.assert_allclose(couplings, expected, atol=1e-6)


def test_compacting_twice_changes_nothing_more(pruned):
    for name in ("dr_capsnet", "efficient_capsnet", "multilayer_capsnet"):
        *_, compact, images = pruned(name)
        again = rem.compact(compact)
        assert again.count_params() == compact.count_params()
        np.testing.assert_allclose(again(images), compact(images), atol=1e-6)


def test_compacted_network_is_evaluated_as_before(rng):
    model = tiny_capsnet()
    prune_units(model, 0.3, rng)
    for variable in target_variables(model.variables, DEFAULT_TARGETS):
        variable.assign(8.0 * variable)
    data = inputs_of(model, 40), np.arange(40) % 3
    reports = (rem.evaluate(m, data, 7) for m in (model, rem.compact(model)))
    before, after = reports
    assert before.entropy_bits > 0.5
    assert after.entropy_bits == before.entropy_bits
    assert after.accuracy_quantized == before.accuracy_quantized
    assert after.t_score == pytest.approx(before.t_score, abs=1e-6)
    assert after.total_parameters < before.total_parameters
    for label in range(3):
        np.testing.assert_array_equal(
            after.dictionary.keys(label), before.dictionary.keys(label)
        )


def test_unstructured_pruning_gives_the_same_in_less(rng):
    sizes = {"primary_types": 8, "primary_dim": 2, "class_dim": 2}
    model = randomized(tiny_capsnet(2, **sizes), rng)
    targets = target_variables(model.variables, DEFAULT_TARGETS)
    arrays = [np.array(variable) for variable in targets]
    for variable, array, mask in zip(
        targets, arrays, rem.magnitude_masks(arrays, 0.9), strict=True
    ):
        variable.assign(3.0 * array * mask)
    compact = compacted(model)
    assert compact.count_params() < 0.7 * model.count_params()
    images = inputs_of(model)
    expected = rem.capsule_outputs(model)(images)
    outputs = rem.capsule_outputs(compact)(images)
    assert_same(outputs, expected)


def test_compacted_network_can_be_rounded_and_trained(pruned):
    *_, compact, images = pruned("multilayer_capsnet")
    model = rem.quantize_couplings(compact, 5)
    assert model.get_layer("class_caps").routing.levels == 5
    before = [np.array(weight) for weight in model.trainable_variables]
    model.compile(keras.optimizers.SGD(1.0), tfcaps.losses.MarginLoss())
    model.train_on_batch(images, np.arange(4) % 3)
    for weight, old in zip(model.trainable_variables, before, strict=True):
        assert np.any(np.asarray(weight) != old), weight.path


def test_decoder_and_labels_stay(rng):
    model = randomized(tiny_capsnet(decoder=True), rng)
    fill(model.get_layer("class_caps").transformation, 3)
    compact = rem.compact(model)
    assert isinstance(compact.get_layer("class_caps"), CompactCaps)
    inputs = {
        "images": inputs_of(tiny_capsnet()),
        "labels": np.array([2, 0, 1, 1], "int32"),
    }
    for training in (False, True):
        expected = model(inputs, training=training)
        outputs = compact(inputs, training=training)
        assert_same(outputs, expected)


def test_compacted_network_takes_a_decoder(pruned):
    *_, compact, images = pruned("dr_capsnet")
    outputs = with_decoder(compact)({"images": images, "labels": None})
    assert outputs["reconstruction"].shape == images.shape


def test_regularized_network_keeps_its_children(rng):
    model = randomized(tiny_capsnet(routing="regularized"), rng)
    fill(model.get_layer("class_caps").transformation, 3)
    compact = rem.compact(model)
    assert compact.count_params() == model.count_params()
    inputs = {"images": inputs_of(tiny_capsnet()), "labels": None}
    np.testing.assert_allclose(
        compact(inputs)["lengths"], model(inputs)["lengths"], atol=1e-6
    )


def test_sequential_model(rng):
    model = keras.Sequential(
        [
            keras.Input((7, 7, 2)),
            layers.Conv2D(4, 3, activation="relu", name="first"),
            PrimaryCaps(2, 4, 3, name="primary"),
            ClassCaps(3, 4, name="class"),
        ],
        name="stack",
    )
    fill(model.get_layer("primary").conv.kernel, np.s_[:, :, 2])
    fill(model.get_layer("class").transformation, 5)
    compact = compacted(randomized(model, rng))
    assert compact.name == "stack"
    assert filters(compact) == 3
    assert len(compact.get_layer("class").origins) == 17


def test_half_precision_folds_nothing(rng):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = randomized(tiny_capsnet(), rng)
    finally:
        keras.config.set_dtype_policy("float32")
    conv = model.get_layer("conv")
    silence(conv, 1, bias=0.7)
    silence(conv, 2, bias=-0.7)
    fill(model.get_layer("class_caps").transformation, 3)
    compact = compacted(model, atol=1e-3)
    kept = np.array(conv.bias)[[0, 1, 3]]
    np.testing.assert_array_equal(compact.get_layer("conv").bias, kept)
    assert compact.get_layer("class_caps").compute_dtype == "float16"
    assert len(compact.get_layer("class_caps").origins) == 7


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
def test_children_stay_where_types_share_matrices(make, rng):
    model = capsnet(make(), rng=rng)
    silence(model.get_layer("primary").conv, np.s_[8:12])
    assert is_left_alone(model)


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
    np.testing.assert_allclose(second.bias, expected, atol=1e-6)


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
        lambda x: layers.Add()([x, x]),
        lambda x: layers.Concatenate()([x, x]),
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

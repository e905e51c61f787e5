"""A decoder beside the lengths of any capsule network."""

import keras
import numpy as np
import pytest

import tfcaps
from tests.networks import SMALL_NETWORKS, tiny_capsnet
from tests.tolerance import assert_all_equal, assert_close
from tfcaps import rem
from tfcaps.losses import MarginLoss, ReconstructionLoss
from tfcaps.models import with_decoder
from training.devices import dtype_policy

LABELS = np.array([2, 0, 1, 1])


@pytest.fixture
def images(rng):
    return rng.random((4, 8, 8, 1), dtype=np.float32)


def compiled(model, optimizer=None):
    model.compile(
        optimizer or keras.optimizers.SGD(0.1),
        {"lengths": MarginLoss(), "reconstruction": ReconstructionLoss()},
        jit_compile=False,
    )
    return model


def fit(model, images, **options):
    model.fit(
        {"images": images, "labels": LABELS},
        {"lengths": LABELS, "reconstruction": images},
        verbose=0,
        **options,
    )


def predict(model, images):
    return model.predict({"images": images, "labels": None}, verbose=0)


def capsules_of(model):
    """Returns the outputs of the class capsules for images."""
    layer = model.get_layer("class_caps")
    return keras.Model(model.input["images"], layer.output)


def small_capsnet(rows=8, name=None, **wanted):
    """A model whose class capsules may return more than their poses."""
    inputs = keras.Input((rows, 8, 1), name=name)
    children = tfcaps.layers.PrimaryCaps(2, 4, 4, strides=2)(inputs)
    poses = tfcaps.layers.ClassCaps(3, 4)(children, **wanted)
    poses = poses[0] if wanted else poses
    return keras.Model(inputs, tfcaps.layers.Length()(poses))


def capsnet_of_maps():
    """A network that ends in 3-D convolutional capsules, its classes types."""
    inputs = keras.Input((8, 8, 1), name="images")
    maps = keras.layers.Conv2D(8, 3, strides=2, activation="relu")(inputs)
    children = tfcaps.layers.PrimaryCaps(2, 4, kernel_size=3)(maps)
    parents = tfcaps.layers.ConvCaps3D(
        3, 4, kernel_size=1, padding="valid", name="classes"
    )(children)
    poses = keras.layers.Reshape((-1, 4))(parents)
    return keras.Model(inputs, tfcaps.layers.Length(name="lengths")(poses))


def sequential_capsnet():
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            tfcaps.layers.PrimaryCaps(2, 4, 4, strides=2),
            tfcaps.layers.ClassCaps(3, 4, routing=2),
            tfcaps.layers.Length(),
        ]
    )


@pytest.mark.parametrize(
    "make",
    [
        tiny_capsnet,
        sequential_capsnet,
        capsnet_of_maps,
        lambda: small_capsnet(return_couplings=True),
        lambda: small_capsnet(return_activations=True),
    ],
    ids=["capsnet", "sequential", "maps", "couplings", "activations"],
)
def test_decoder_shares_the_weights_of_the_network(make, images):
    model = make()
    joint = with_decoder(model)
    assert {tensor.name for tensor in joint.inputs} == {"images", "labels"}
    ours = {id(weight) for weight in joint.weights}
    assert {id(weight) for weight in model.weights} < ours
    before = np.asarray(model(images))
    assert_close(predict(joint, images)["lengths"], before)
    fit(compiled(joint), images)
    outputs = predict(joint, images)
    assert_close(outputs["lengths"], model(images))
    assert np.max(np.abs(outputs["lengths"] - before)) > 1e-4
    assert outputs["reconstruction"].shape == images.shape


def test_a_dict_of_outputs_is_not_nested(images):
    model = tiny_capsnet()
    named = keras.Model(model.input, {"lengths": model.output})
    outputs = predict(with_decoder(named), images)
    assert outputs["lengths"].shape == (4, model.output.shape[-1])


def test_labels_choose_the_capsule_in_training_alone(images):
    model = with_decoder(tiny_capsnet())
    poses = capsules_of(model)(images)
    decoder = model.get_layer("reconstruction")
    longest = decoder(poses)
    labelled = decoder(poses, labels=LABELS, training=True)
    assert np.max(np.abs(labelled - longest)) > 1e-5
    for training, expected in ((True, labelled), (False, longest)):
        for labels in (LABELS, LABELS.astype("int32")):
            inputs = {"images": images, "labels": labels}
            outputs = model(inputs, training=training)
            assert_close(outputs["reconstruction"], expected)
    assert_close(predict(model, images)["reconstruction"], longest)


def test_explicit_activations_choose_the_longest_capsule(rng):
    model = SMALL_NETWORKS["em_capsnet"](decoder=True)
    images = rng.random((4, 13, 13, 1), dtype=np.float32)
    poses, activations = map(np.asarray, capsules_of(model)(images))
    outputs = predict(model, images)
    assert_close(outputs["lengths"], activations)
    decoder = model.get_layer("reconstruction")
    expected = decoder(poses, activations=activations)
    assert_close(outputs["reconstruction"], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "settings", "side"),
    [
        ("efficient_capsnet", {}, 12),
        ("dr_capsnet", {"routing": "regularized"}, 8),
    ],
    ids=["normalisation", "coefficients"],
)
def test_frozen_network_leaves_only_the_decoder_to_learn(
    name, settings, side, images
):
    model = SMALL_NETWORKS[name](**settings)
    before = [weight.numpy() for weight in model.weights]
    joint = with_decoder(model, frozen=True)
    decoder = joint.get_layer("reconstruction")
    assert {w.path for w in joint.trainable_weights} == {
        w.path for w in decoder.trainable_weights
    }
    weights = [weight.numpy() for weight in decoder.weights]
    fit(compiled(joint), np.resize(images, (4, side, side, 1)))
    assert_all_equal(model.weights, before)
    for weight, old in zip(decoder.weights, weights, strict=True):
        assert np.any(weight.numpy() != old)


def test_decoder_is_neither_pruned_nor_counted(images):
    model = tiny_capsnet()
    joint = compiled(with_decoder(model))
    kernels = [
        weight
        for weight in joint.get_layer("reconstruction").weights
        if "kernel" in weight.name
    ]
    rem.prune_low_magnitude(joint, lambda step: 0.5)
    fit(joint, images, callbacks=[rem.UpdatePruningStep()])
    rem.strip_pruning(joint)
    assert all(np.all(kernel.numpy() != 0) for kernel in kernels)
    for kernel in kernels:
        kernel.assign(0.0 * kernel)
    assert rem.sparsity(joint) == pytest.approx(0.5, abs=0.02)
    assert rem.sparsity(joint) == rem.sparsity(model)


def test_decoder_is_not_decayed_by_sensitivity(images):
    optimizer = rem.sensitivity_decay(keras.optimizers.SGD(0.0), 0.5)
    model = compiled(with_decoder(tiny_capsnet()), optimizer)
    decoder = model.get_layer("reconstruction")
    before = [weight.numpy() for weight in decoder.weights]
    others = model.get_layer("class_caps").transformation.numpy()
    fit(model, images)
    assert_all_equal(decoder.weights, before)
    assert np.any(model.get_layer("class_caps").transformation != others)


def plain():
    images = keras.Input((8, 8, 1))
    return keras.Model(images, keras.layers.Flatten()(images), name="plain")


def of_five_classes():
    model = capsnet_of_maps()
    mixed = keras.layers.Dense(5, name="mixed")(model.output)
    return keras.Model(model.input, mixed)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: with_decoder(with_decoder(tiny_capsnet())),
            "The model 'dr_capsnet' has a decoder already",
        ),
        (lambda: with_decoder(plain()), "'plain' has no routed capsule layer"),
        (
            lambda: with_decoder(small_capsnet(9), "deconvolution"),
            "needs sides divisible by 4",
        ),
        (
            lambda: with_decoder(of_five_classes()),
            "5 lengths, .* 'classes' 3 capsules",
        ),
    ],
    ids=["decoder", "plain", "side", "classes"],
)
def test_wrong_networks_are_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_decoder_has_the_policy_of_the_capsules_and_float32_images(images):
    with dtype_policy("mixed_float16"):
        model = tiny_capsnet()
    decoded = with_decoder(model)
    assert decoded.get_layer("reconstruction").compute_dtype == "float16"
    outputs = decoded({"images": images, "labels": None})
    assert outputs["reconstruction"].dtype.name == "float32"

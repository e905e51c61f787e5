"""A decoder beside the lengths of any capsule network."""

import keras
import numpy as np
import pytest

from tests.networks import (
    SMALL_NETWORKS,
    images_of,
    named_outputs,
    sequential_capsnet,
    tiny_capsnet,
)
from tests.refusals import refused
from tests.tolerance import assert_all_equal, assert_close
from tfcaps import layers, rem
from tfcaps.losses import MarginLoss, ReconstructionLoss
from tfcaps.models import with_decoder
from training.devices import dtype_policy

LABELS = np.array([2, 0, 1, 1])


@pytest.fixture
def images(rng):
    return rng.random((4, 8, 8, 1), dtype=np.float32)


def fit(model, images, optimizer=None, **options):
    model.compile(
        optimizer or keras.optimizers.SGD(0.1),
        {"lengths": MarginLoss(), "reconstruction": ReconstructionLoss()},
        run_eagerly=True,
    )
    inputs = {"images": images, "labels": LABELS}
    targets = {"lengths": LABELS, "reconstruction": images}
    model.fit(inputs, targets, verbose=0, **options)


def capsules_of(model):
    layer = model.get_layer("class_caps")
    return keras.Model(model.input["images"], layer.output)


def small_capsnet(rows=8, **wanted):
    """A model whose class capsules may return more than their poses."""
    inputs = keras.Input((rows, 8, 1))
    children = layers.PrimaryCaps(2, 4, 4, strides=2)(inputs)
    poses = layers.ClassCaps(3, 4)(children, **wanted)
    poses = poses[0] if wanted else poses
    return keras.Model(inputs, layers.Length()(poses))


def capsnet_of_maps():
    """A network that ends in 3-D convolutional capsules, its classes types."""
    inputs = keras.Input((8, 8, 1), name="images")
    maps = keras.layers.Conv2D(8, 3, strides=2, activation="relu")(inputs)
    children = layers.PrimaryCaps(2, 4, kernel_size=3)(maps)
    parents = layers.ConvCaps3D(3, 4, name="classes")(children)
    poses = keras.layers.Reshape((-1, 4))(parents)
    return keras.Model(inputs, layers.Length(name="lengths")(poses))


def with_named_lengths():
    model = tiny_capsnet()
    return keras.Model(model.input, {"lengths": model.output})


@pytest.mark.parametrize(
    "make",
    [
        tiny_capsnet,
        with_named_lengths,
        lambda: sequential_capsnet(layers.Length()),
        capsnet_of_maps,
        lambda: small_capsnet(return_couplings=True),
    ],
    ids=["capsnet", "dict", "sequential", "maps", "couplings"],
)
def test_decoder_shares_the_weights_of_the_network(make, images):
    model = make()
    joint = with_decoder(model)
    assert {tensor.name for tensor in joint.inputs} == {"images", "labels"}
    ours = {id(weight) for weight in joint.weights}
    assert {id(weight) for weight in model.weights} < ours
    before = named_outputs(model, images)["lengths"]
    assert_close(named_outputs(joint, images)["lengths"], before)
    fit(joint, images)
    outputs = named_outputs(joint, images)
    assert_close(outputs["lengths"], named_outputs(model, images)["lengths"])
    assert np.max(np.abs(outputs["lengths"] - before)) > 1e-4
    assert outputs["reconstruction"].shape == images.shape


def test_labels_choose_the_capsule_in_training_alone(images):
    model = with_decoder(tiny_capsnet())
    poses = capsules_of(model)(images)
    decoder = model.get_layer("reconstruction")
    labelled = decoder(poses, labels=LABELS, training=True)
    assert np.max(np.abs(labelled - decoder(poses))) > 1e-5
    inputs = {"images": images, "labels": LABELS}
    outputs = model(inputs, training=True)
    assert_close(outputs["reconstruction"], labelled)
    for given in (inputs, {"images": images, "labels": None}):
        outputs = model.predict(given, verbose=0)
        assert_close(outputs["reconstruction"], decoder(poses))


def test_explicit_activations_choose_the_longest_capsule():
    model = SMALL_NETWORKS["em_capsnet"](decoder=True)
    images = np.random.default_rng(1).random((4, 13, 13, 1), "float32")
    poses, activations = map(np.asarray, capsules_of(model)(images))
    lengths = np.linalg.norm(poses, axis=-1)
    assert np.any(lengths.argmax(axis=1) != activations.argmax(axis=1))
    outputs = named_outputs(model, images)
    assert_close(outputs["lengths"], activations)
    decoder = model.get_layer("reconstruction")
    expected = decoder(poses, activations=activations)
    assert_close(outputs["reconstruction"], expected, atol=1e-5)


def test_of_one_class_what_is_not_there_is_hidden():
    decoder = with_decoder(tiny_capsnet(1)).get_layer("reconstruction")
    poses = np.ones((2, 1, 4), "float32")
    shown = decoder(poses, labels=np.array([1, 0]), training=True)
    nothing = decoder.decode(poses, np.zeros((2, 1), "float32"))
    assert_close(shown[1], nothing[1])
    assert np.abs(np.asarray(shown[0]) - np.asarray(nothing[0])).max() > 1e-4


@pytest.mark.parametrize(
    ("name", "settings"),
    [("efficient_capsnet", {}), ("dr_capsnet", {"routing": "regularized"})],
    ids=["normalisation", "coefficients"],
)
def test_frozen_network_leaves_only_the_decoder_to_learn(name, settings):
    plain = SMALL_NETWORKS[name]()
    model = SMALL_NETWORKS[name](**settings)
    before = [weight.numpy() for weight in model.weights]
    joint = with_decoder(model, frozen=True)
    decoder = joint.get_layer("reconstruction")
    assert {w.path for w in joint.trainable_weights} == {
        w.path for w in decoder.trainable_weights
    }
    weights = [weight.numpy() for weight in decoder.weights]
    fit(joint, images_of(plain, 4))
    assert_all_equal(model.weights, before)
    for weight, old in zip(decoder.weights, weights, strict=True):
        assert np.any(weight.numpy() != old)


def test_decoder_has_the_policy_of_the_capsules_and_float32_images(images):
    with dtype_policy("mixed_float16"):
        model = tiny_capsnet()
    decoded = with_decoder(model)
    assert decoded.get_layer("reconstruction").compute_dtype == "float16"
    assert named_outputs(decoded, images)["reconstruction"].dtype == "float32"


def plain():
    images = keras.Input((8, 8, 1))
    return keras.Model(images, keras.layers.Flatten()(images), name="plain")


def of_five_classes():
    model = capsnet_of_maps()
    mixed = keras.layers.Dense(5, name="mixed")(model.output)
    return keras.Model(model.input, mixed)


test_wrong_networks_are_refused = refused(
    """
with_decoder(with_decoder(tiny_capsnet()))
    The model 'dr_capsnet' has a decoder already
with_decoder(plain())
    'plain' has no routed capsule layer
with_decoder(small_capsnet(9), "deconvolution")
    needs sides divisible by 4
with_decoder(of_five_classes())
    5 lengths, and its last routed layer 'classes' 3 capsules
""",
    **globals(),
)


def test_decoder_is_neither_pruned_nor_counted_nor_decayed(images):
    model = tiny_capsnet()
    joint = with_decoder(model)
    rem.prune_low_magnitude(joint, lambda step: 0.5)
    decoder = joint.get_layer("reconstruction")
    before = [weight.numpy() for weight in decoder.weights]
    others = joint.get_layer("class_caps").transformation.numpy()
    fit(
        joint,
        images,
        rem.sensitivity_decay(keras.optimizers.SGD(0.0), 0.5),
        callbacks=[rem.UpdatePruningStep()],
    )
    rem.strip_pruning(joint)
    assert_all_equal(decoder.weights, before)
    assert np.any(joint.get_layer("class_caps").transformation != others)
    for weight in decoder.weights:
        weight.assign(0.0 * weight)
    assert rem.sparsity(joint) == pytest.approx(0.5, abs=0.02)
    assert rem.sparsity(joint) == rem.sparsity(model)

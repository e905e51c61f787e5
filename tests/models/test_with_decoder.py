"""A decoder beside the lengths of any capsule network."""

import re

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


def compiled(model, rate=0.1):
    model.compile(
        keras.optimizers.SGD(rate),
        {"lengths": MarginLoss(), "reconstruction": ReconstructionLoss()},
        jit_compile=False,
    )
    return model


def train(model, images):
    return model.train_on_batch(
        {"images": images, "labels": LABELS},
        {"lengths": LABELS, "reconstruction": images},
    )


def sequential_capsnet():
    return keras.Sequential(
        [
            keras.Input((8, 8, 1), name="images"),
            tfcaps.layers.PrimaryCaps(2, 4, 4, strides=2),
            tfcaps.layers.ClassCaps(3, 4, routing=2, name="class_caps"),
            tfcaps.layers.Length(),
        ]
    )


def looked_at_capsnet(**wanted):
    """A model whose class capsules return more than their poses."""
    inputs = keras.Input((8, 8, 1), name="images")
    children = tfcaps.layers.PrimaryCaps(2, 4, 4, strides=2)(inputs)
    poses, *_ = tfcaps.layers.ClassCaps(3, 4)(children, **wanted)
    return keras.Model(inputs, tfcaps.layers.Length()(poses))


@pytest.mark.parametrize(
    "wanted",
    [
        {"return_couplings": True},
        {"return_activations": True},
        {"return_activations": True, "return_couplings": True},
    ],
    ids=lambda wanted: "+".join(wanted),
)
def test_class_capsules_may_return_more_than_poses(wanted, images):
    model = with_decoder(looked_at_capsnet(**wanted))
    shown = model.predict({"images": images, "labels": None}, verbose=0)
    assert shown["reconstruction"].shape == images.shape


@pytest.mark.parametrize("make", [tiny_capsnet, sequential_capsnet])
def test_decoder_shares_the_weights_of_the_network(make, images):
    model = make()
    joint = with_decoder(model)
    ours = {id(weight) for weight in joint.weights}
    assert {id(weight) for weight in model.weights} < ours
    before = np.asarray(model(images))
    inputs = {"images": images, "labels": None}
    lengths = joint.predict(inputs, verbose=0)["lengths"]
    assert_close(lengths, before)
    train(compiled(joint), images)
    lengths = joint.predict(inputs, verbose=0)["lengths"]
    assert_close(lengths, model(images))
    assert np.max(np.abs(lengths - before)) > 1e-4


def test_a_dict_of_outputs_is_not_nested(images):
    model = tiny_capsnet()
    named = keras.Model(model.input, {"lengths": model.output})
    outputs = with_decoder(named).predict(
        {"images": images, "labels": None}, verbose=0
    )
    assert outputs["lengths"].shape == (4, model.output.shape[-1])


def test_labels_choose_the_capsule_in_training_alone(images):
    model = with_decoder(tiny_capsnet())
    poses = keras.Model(
        model.input["images"], model.get_layer("class_caps").output
    )(images)
    decoder = model.get_layer("reconstruction")
    longest = decoder(poses)
    expected = {
        True: decoder(poses, labels=LABELS, training=True),
        False: longest,
    }
    assert np.max(np.abs(expected[True] - longest)) > 1e-5
    for training, images_out in expected.items():
        for labels in (LABELS, LABELS.astype("int32")):
            outputs = model(
                {"images": images, "labels": labels}, training=training
            )
            assert_close(outputs["reconstruction"], images_out)
    outputs = model.predict({"images": images, "labels": None}, verbose=0)
    assert_close(outputs["reconstruction"], longest)


def test_explicit_activations_choose_the_longest_capsule(rng):
    model = SMALL_NETWORKS["em_capsnet"](decoder=True)
    images = rng.random((4, 13, 13, 1), dtype=np.float32)
    shown = keras.Model(
        model.input["images"], model.get_layer("class_caps").output
    )
    poses, activations = map(np.asarray, shown(images))
    outputs = model.predict({"images": images, "labels": None}, verbose=0)
    assert_close(outputs["lengths"], activations)
    decoder = model.get_layer("reconstruction")
    expected = decoder(poses, activations=activations)
    assert_close(outputs["reconstruction"], expected, atol=1e-5)


def test_frozen_network_leaves_only_the_decoder_to_learn(images):
    model = SMALL_NETWORKS["efficient_capsnet"]()
    images = np.resize(images, (4, 12, 12, 1))
    before = [weight.numpy() for weight in model.weights]
    joint = with_decoder(model, frozen=True)
    decoder = joint.get_layer("reconstruction")
    assert {w.path for w in joint.trainable_weights} == {
        w.path for w in decoder.trainable_weights
    }
    weights = [weight.numpy() for weight in decoder.weights]
    train(compiled(joint), images)
    assert_all_equal(model.weights, before)
    for weight, old in zip(decoder.weights, weights, strict=True):
        assert np.any(weight.numpy() != old)


def test_frozen_network_keeps_its_coefficients(images):
    routing = tfcaps.routing.RegularizedRouting(rate=0.1)
    model = tiny_capsnet(routing=routing)
    coefficients = model.get_layer("class_caps").coefficients
    before = coefficients.numpy()
    train(compiled(with_decoder(model, frozen=True)), images)
    np.testing.assert_array_equal(coefficients, before)


@pytest.mark.parametrize("class_independent", [False, True])
def test_decoder_is_saved_and_loaded(class_independent, images, tmp_path):
    model = compiled(with_decoder(tiny_capsnet(), "dense", class_independent))
    train(model, images)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    decoder = loaded.get_layer("reconstruction")
    assert decoder.class_independent is class_independent
    assert not any(w.prunable for w in decoder.trainable_weights)
    inputs = {"images": images, "labels": None}
    expected = model.predict(inputs, verbose=0)
    for name, output in loaded.predict(inputs, verbose=0).items():
        assert_close(output, expected[name])
    # The optimiser came along.
    assert np.all(np.isfinite(train(loaded, images)))
    assert int(loaded.optimizer.iterations) == 2


@pytest.mark.slow
def test_decoder_learns_to_reconstruct(images):
    model = compiled(with_decoder(tiny_capsnet(), frozen=True))
    model.compile(
        keras.optimizers.Adam(0.01),
        {"lengths": None, "reconstruction": ReconstructionLoss(1.0)},
        jit_compile=False,
    )
    history = model.fit(
        {"images": images, "labels": LABELS},
        {"reconstruction": images},
        epochs=30,
        verbose=0,
    )
    losses = history.history["loss"]
    assert losses[-1] < 0.5 * losses[0]


def test_decoder_is_neither_pruned_nor_counted(images):
    model = tiny_capsnet()
    joint = compiled(with_decoder(model))
    before = rem.sparsity(joint)
    kernels = [
        w
        for w in joint.get_layer("reconstruction").weights
        if "kernel" in w.name
    ]
    for kernel in kernels:
        kernel.assign(0.0 * kernel)
    assert rem.sparsity(joint) == before == rem.sparsity(model)
    joint = compiled(with_decoder(tiny_capsnet()))
    rem.prune_low_magnitude(joint, lambda step: 0.5)
    joint.fit(
        {"images": images, "labels": LABELS},
        {"lengths": LABELS, "reconstruction": images},
        callbacks=[rem.UpdatePruningStep()],
        verbose=0,
    )
    rem.strip_pruning(joint)
    assert rem.sparsity(joint) == pytest.approx(0.5, abs=0.02)
    for weight in joint.get_layer("reconstruction").weights:
        if "kernel" in weight.name:
            assert np.all(weight.numpy() != 0)


def test_decoder_is_not_decayed_by_sensitivity(images):
    model = with_decoder(tiny_capsnet())
    optimizer = rem.sensitivity_decay(keras.optimizers.SGD(0.0), 0.5)
    model.compile(
        optimizer,
        {"lengths": MarginLoss(), "reconstruction": ReconstructionLoss()},
        jit_compile=False,
    )
    decoder = model.get_layer("reconstruction")
    before = [weight.numpy() for weight in decoder.weights]
    others = model.get_layer("class_caps").transformation.numpy()
    train(model, images)
    assert_all_equal(decoder.weights, before)
    assert np.any(model.get_layer("class_caps").transformation != others)


def test_wrong_networks_are_refused():
    model = with_decoder(tiny_capsnet())
    message = "The model 'dr_capsnet' has a decoder already."
    with pytest.raises(ValueError, match=re.escape(message)):
        with_decoder(model)
    images = keras.Input((8, 8, 1))
    plain = keras.Model(images, keras.layers.Flatten()(images), name="plain")
    message = "The model 'plain' has no routed capsule layer, such as"
    with pytest.raises(ValueError, match=re.escape(message)):
        with_decoder(plain)
    images = keras.Input((9, 8, 1), name="images")
    children = tfcaps.layers.PrimaryCaps(2, 4, 4, strides=2)(images)
    poses = tfcaps.layers.ClassCaps(3, 4)(children)
    odd = keras.Model(images, tfcaps.layers.Length()(poses))
    with pytest.raises(ValueError, match="needs sides divisible by 4"):
        with_decoder(odd, "deconvolution")


def test_decoder_has_the_policy_of_the_capsules_and_float32_images(images):
    with dtype_policy("mixed_float16"):
        model = tiny_capsnet()
    decoded = with_decoder(model)
    assert decoded.get_layer("reconstruction").compute_dtype == "float16"
    outputs = decoded({"images": images, "labels": None})
    assert outputs["reconstruction"].dtype.name == "float32"


def test_input_of_another_name_is_called_images(images):
    model = sequential_capsnet()
    decoded = with_decoder(model)
    assert {tensor.name for tensor in decoded.inputs} == {"images", "labels"}
    expected = model(images)
    outputs = decoded({"images": images, "labels": None})
    assert_close(outputs["lengths"], expected)


def capsnet_of_maps(positions):
    """A network that ends in 3-D convolutional capsules, its classes types."""
    inputs = keras.Input((8, 8, 1), name="images")
    maps = keras.layers.Conv2D(8, 3, strides=2, activation="relu")(inputs)
    children = tfcaps.layers.PrimaryCaps(2, 4, kernel_size=3)(maps)
    kernel_size = 1 if positions > 1 else children.shape[1]
    parents = tfcaps.layers.ConvCaps3D(
        3, 4, kernel_size=kernel_size, padding="valid", name="classes"
    )(children)
    poses = keras.layers.Reshape((-1, 4))(parents)
    return keras.Model(inputs, tfcaps.layers.Length(name="lengths")(poses))


def test_the_last_capsules_may_stand_on_a_map(images):
    model = capsnet_of_maps(1)
    decoded = compiled(with_decoder(model))
    assert_close(
        decoded.predict({"images": images, "labels": LABELS}, verbose=0)[
            "lengths"
        ],
        model.predict(images, verbose=0),
    )
    before = decoded.get_layer("reconstruction").get_weights()[0]
    train(decoded, images)
    after = decoded.get_layer("reconstruction").get_weights()[0]
    assert not np.array_equal(before, after)


def test_there_must_be_a_pose_for_each_class(images):
    model = capsnet_of_maps(1)
    mean = keras.layers.Dense(5, name="mixed")(model.output)
    with pytest.raises(ValueError, match="5 lengths, .* 'classes' 3 capsules"):
        with_decoder(keras.Model(model.input, mean))

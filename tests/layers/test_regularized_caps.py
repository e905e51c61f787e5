"""ClassCaps with coefficients that are learnt from labels."""

import keras
import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, built, tiny_capsnet
from tests.tolerance import assert_close
from tfcaps import rem
from tfcaps.layers import ClassCaps
from tfcaps.losses import MarginLoss
from tfcaps.routing import RegularizedRouting, UniformRouting

LABELS = np.array([2, 0, 1, 1, 2])


@pytest.fixture
def children(rng):
    return rng.normal(size=(5, 6, 4)).astype("float32")


def made(penalty="l2"):
    routing = RegularizedRouting(penalty, strength=0.2, rate=0.05)
    return built(ClassCaps(3, 4, routing=routing), (None, 6, 4), None)


def next_coefficients(layer, children, labels):
    votes = np.einsum("bik,ijkd->bijd", children, layer.transformation)
    targets = np.eye(3, dtype="float32")[labels]
    step = layer.routing.step(votes, layer.coefficients.numpy(), targets)
    return np.asarray(step)


@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_labels_in_training_move_the_coefficients(penalty, children):
    layer = made(penalty)
    assert_close(layer.coefficients, 1 / 3)
    one_hot = np.eye(3, dtype="float32")[LABELS]
    for labels in (LABELS, LABELS[:, None], one_hot):
        expected = next_coefficients(layer, children, LABELS)
        poses, couplings = layer(
            children, labels=labels, return_couplings=True, training=True
        )
        assert_close(layer.coefficients, expected, atol=1e-5)
        # What is returned is routed by the new ones.
        assert_close(couplings, [expected] * 5, atol=1e-5)
        assert_close(poses, layer(children), atol=1e-5)
    assert not layer.coefficients.trainable
    before = layer.coefficients.numpy()
    layer(children, training=True)
    layer(children, labels=LABELS)
    np.testing.assert_array_equal(layer.coefficients, before)


def test_coefficients_move_once_a_batch_during_fit(children):
    layer = made()
    poses = keras.Input((6, 4), name="images")
    labels = keras.Input((), dtype="int32", name="labels", optional=True)
    model = keras.Model([poses, labels], layer(poses, labels=labels))
    model.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=False)
    start = layer.coefficients.numpy()
    for part in (slice(0, 2), slice(2, 4), slice(4, 5)):
        step = next_coefficients(layer, children[part], LABELS[part])
        layer.coefficients.assign(step)
    expected = layer.coefficients.numpy()
    layer.coefficients.assign(start)
    inputs, targets = [children, LABELS], np.zeros((5, 3, 4), "float32")
    model.fit(inputs, targets, batch_size=2, shuffle=False, verbose=0)
    model.evaluate(inputs, targets, verbose=0)
    assert_close(layer.coefficients, expected, atol=1e-5)


def test_network_keeps_its_coefficients_unpruned_and_undecayed(rng, tmp_path):
    model = tiny_capsnet(routing=RegularizedRouting(rate=0.0))
    assert [tensor.name for tensor in model.inputs] == ["images", "labels"]
    optimizer = rem.sensitivity_decay(keras.optimizers.SGD(0.1), 0.1)
    model.compile(optimizer, {"lengths": MarginLoss()}, jit_compile=False)
    rem.prune_low_magnitude(model, lambda step: 0.9)
    images = rng.random((5, 8, 8, 1), dtype=np.float32)
    model.fit(
        {"images": images, "labels": LABELS},
        {"lengths": LABELS},
        callbacks=[rem.UpdatePruningStep()],
        verbose=0,
    )
    coefficients = model.get_layer("class_caps").coefficients
    assert_close(coefficients, 1 / 3)
    rem.strip_pruning(model)
    coefficients.assign(rng.random(coefficients.shape))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    # Prediction needs no labels.
    lengths = loaded({"images": images, "labels": None})["lengths"]
    assert_close(lengths, rem.classifier(model)(images))


@pytest.mark.parametrize(
    "name", ["gamma_capsnet", "multilayer_capsnet", "efficient_conv_capsnet"]
)
def test_hidden_layers_are_routed_uniformly(name):
    model = SMALL_NETWORKS[name](routing="regularized")
    routed = [layer for layer in model.layers if hasattr(layer, "routing")]
    kinds = [type(layer.routing) for layer in routed]
    assert len(kinds) > 1
    assert kinds == [UniformRouting] * (len(kinds) - 1) + [RegularizedRouting]

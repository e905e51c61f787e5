"""The plain network that capsules are compared with."""

import dataclasses
import json
import re

import keras
import numpy as np
import pytest

from cli import UserError
from tests.training.test_run import command, tiny_data
from tfcaps import rem
from tfcaps.layers import ClassCaps, Length
from training import datasets, dense_head, networks
from training.configs import Config
from training.folder import RunFolder
from training.image_data import Images, Split


@pytest.mark.parametrize(
    ("name", "features"),
    [
        ("parts_capsnet", (16, 16, 32)),
        ("dr_capsnet_small", (24, 24, 64)),
        # Averaged over 2x2: else it would have more parameters.
        ("efficient_capsnet", (5, 5, 128)),
    ],
)
def test_a_dense_layer_stands_where_capsules_stood(name, features):
    network = networks.build(name, (32, 32, 1), 5, decoder=True)
    model = dense_head.build(network)
    assert model.output_shape == (None, 5)
    assert model.count_params() <= network.count_params()
    assert model.get_layer("flat").input.shape[1:] == features
    below = [w.path for w in model.weights if "logits" not in w.path]
    assert set(below) < {w.path for w in network.weights}
    assert not [w for w in below if "caps" in w]


@pytest.mark.parametrize(
    ("name", "values"),
    [("efficient_capsnet", 128), ("dr_capsnet_small", 8 * 8)],
)
def test_dense_layers_stand_on_the_convolution_of_the_primary_capsules(
    name, values
):
    network = networks.build(name, (32, 32, 1), 5, decoder=True)
    model = dense_head.build(network, "primary")
    hidden = model.get_layer("hidden")
    assert hidden.input.shape[1:] == (values,)
    # One more unit would be more parameters than the capsules have.
    params = model.count_params()
    capsules = rem.encoder(network).count_params()
    assert params <= capsules < params + values + 1 + 5
    images = np.random.default_rng(0).random((2, 32, 32, 1), "float32")
    below = network.get_layer("primary_caps")
    conv = below.conv
    model.get_layer("primary_conv").set_weights(conv.get_weights())
    features = keras.Model(network.inputs[0], below.input)
    flat = keras.Model(model.inputs[0], model.get_layer("flat").output)
    expected = np.maximum(conv(features(images)), 0).reshape(2, -1)
    np.testing.assert_allclose(flat(images), expected, atol=1e-5)


def test_a_network_without_primary_capsules_is_refused():
    layers = [
        keras.layers.Flatten(),
        keras.layers.Reshape((16, 4)),
        ClassCaps(3, 4),
        Length(),
    ]
    network = keras.Sequential([keras.Input((8, 8, 1)), *layers])
    with pytest.raises(UserError, match="needs a network with PrimaryCaps"):
        dense_head.build(network, "primary")


def test_it_is_measured_on_every_test_set(tmp_path, capsys):
    data = datasets.load(str(tiny_data(tmp_path / "tiny.npz")))
    mirrored = Split(Images(data.test.images[:][:, ::-1]), data.test.labels)
    data = dataclasses.replace(data, others={"mirrored": mirrored})
    folder = RunFolder(tmp_path, Config(epochs=1, model="parts_capsnet"))
    right = dense_head.accuracy(data, folder)
    kept = json.loads((tmp_path / "dense_head.json").read_text("utf-8"))
    model = keras.saving.load_model(
        tmp_path / "dense_head.keras", compile=False
    )
    for split, expected in (
        (data.test, right),
        (mirrored, kept["tests"]["mirrored"]),
    ):
        answers = model.predict(split.images[:], verbose=0).argmax(axis=-1)
        assert expected == pytest.approx(np.mean(answers == split.labels))
    said = f"mirrored images: {kept['tests']['mirrored']:.2%} right"
    assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_a_run_compares_with_it_once(tmp_path, capsys, monkeypatch):
    data = tiny_data(tmp_path / "tiny.npz")
    flags = ("--dataset", data, "--epochs", 1, "--bare", "--dense-head")
    assert command(*flags, "--out", tmp_path / "run") == 0
    result = json.loads((tmp_path / "run" / "dense_head.json").read_text())
    printed = capsys.readouterr().out
    accuracy = f"{100 * result['accuracy']:.2f}"
    row = re.compile(rf"\| Dense head *\| *{accuracy} \| *– \|")
    assert row.search(printed)
    said = f"capsules: {accuracy}% of the test images right."
    assert said in " ".join(printed.split())
    monkeypatch.setattr(keras.Model, "fit", lambda *a, **k: pytest.fail())
    assert command("--resume", "--bare", "--out", tmp_path / "run") == 0
    assert row.search(capsys.readouterr().out)

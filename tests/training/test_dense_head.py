"""The plain network that capsules are compared with."""

import dataclasses
import json
import re

import keras
import numpy as np
import pytest

from tests.training.test_run import command, tiny_data
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

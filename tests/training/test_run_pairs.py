"""Images of two digits: training on them, and what is measured."""

import json

import keras
import numpy as np
import pytest

from tests.networks import tiny_capsnet
from tests.training.test_run import command, metrics
from tfcaps import rem
from training.datasets import prepared
from training.datasets.data import Data
from training.image_data import Images, Split
from training.pairs import both_found, share_found


@pytest.fixture
def small_mnist(monkeypatch, rng):
    def part(count):
        images = rng.integers(0, 256, (count, 28, 28, 1), dtype=np.uint8)
        return Split(Images(images), np.arange(count) % 10)

    train, test = part(40), part(20)
    digits = tuple(str(k) for k in range(10))
    data = Data("mnist", train, train.take(slice(0)), test, digits)
    monkeypatch.setattr(prepared, "load", lambda *args: data)


@pytest.mark.slow
def test_a_run_measures_both_accuracies(small_mnist, tmp_path, capsys):
    out = tmp_path / "run"
    flags = ("--rem", "--no-baseline", "--bare", "--epochs", 1)
    assert command(*flags, "--dataset", "multimnist", "--out", out) == 0
    measured = json.loads((out / "rem.json").read_text())["models"]["rem"]
    pairs = measured["tests"]["pairs"]
    assert 0.0 <= pairs["both_found"] <= pairs["share_found"] <= 1.0
    sentence = f"REM, both digits of {pairs['both_found']:.2%} of the images"
    assert sentence in " ".join(capsys.readouterr().out.split())
    rows = metrics(out)
    assert {"both_found", "share_found"} <= set(rows[0])
    assert not (out / "served").exists() and not (out / "figures").exists()


@pytest.mark.slow
def test_few_digits_are_classes_of_all(small_mnist, tmp_path, capfd):
    flags = ("--dataset", "multimnist", "--bare", "--epochs", 1)
    flags += ("--validation", 0)
    assert command(*flags, "--samples", 5, "--out", tmp_path / "few") == 0
    assert command(*flags, "--samples", 1, "--out", tmp_path / "one") == 2
    assert "take more --samples" in capfd.readouterr().err


def test_a_decoder_needs_one_class(small_mnist, tmp_path, capfd):
    flags = ("--dataset", "multimnist", "--decoder", "joint")
    assert command(*flags, "--out", tmp_path / "run") == 2
    assert "one class for each image" in capfd.readouterr().err


def test_the_longest_of_several_present_classes_counts(rng):
    keras.utils.set_random_seed(0)
    model = tiny_capsnet()
    images = rng.random((30, 8, 8, 1), dtype=np.float32)
    lengths = model.predict(images, verbose=0)
    longest = lengths.argmax(axis=1)
    one_hot = np.eye(3, dtype=np.float32)
    two = one_hot[longest] + one_hot[(longest + 1) % 3]
    others = one_hot[(longest + 1) % 3] + one_hot[(longest + 2) % 3]
    assert rem.evaluate(model, (images, two)).accuracy == 1.0
    assert rem.evaluate(model, (images, others)).accuracy == 0.0
    second = np.argsort(lengths, axis=1)[:, -2]
    found = np.mean((longest + 1) % 3 == second)
    assert np.mean(both_found(two, lengths)) == pytest.approx(found)
    assert np.mean(share_found(two, lengths)) == pytest.approx(
        0.5 + 0.5 * found
    )

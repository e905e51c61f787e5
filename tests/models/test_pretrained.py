"""Networks that come with the package: files, cards, and what they can do."""

import json
import os
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import tfcaps
from tests.tolerance import SUMS
from tfcaps.models import load_pretrained
from training import datasets, pretrained

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tfcaps" / "models" / "pretrained"
# As TensorFlow Datasets itself looks for them.
DATA = Path(
    os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
).expanduser()
NAMES = (
    *("fashion_mnist", "fashion_mnist_parts", "figures", "mnist"),
    "mnist_strokes",
)
# Images whose two longest capsules are as long may change sides elsewhere.
_ROUNDING = 0.001

each_name = pytest.mark.parametrize("name", NAMES)


def facts_of(name):
    return json.loads((FOLDER / f"{name}.json").read_text("utf-8"))


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The folder of the networks, which may be spoilt."""
    for path in FOLDER.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    module = sys.modules["tfcaps.models.load_pretrained"]
    monkeypatch.setattr(module, "_FOLDER", tmp_path)
    return tmp_path


def test_each_has_its_three_files():
    files = {path.name for path in FOLDER.iterdir()}
    assert files == {f"{n}.{e}" for n in NAMES for e in ("json", "keras", "md")}


def test_the_table_is_of_what_is_shipped():
    table = (ROOT / "results" / "pretrained" / "table.md").read_text("utf-8")
    assert table == pretrained.table()
    assert all(f"\n| {name}, " in table for name in NAMES)


@each_name
def test_network_is_small_float32_and_what_its_card_says(name):
    model, facts = load_pretrained(name), facts_of(name)
    path = FOLDER / f"{name}.keras"
    assert path.stat().st_size == facts["bytes"] <= 1_000_000
    assert list(model.input.shape[1:]) == facts["image"]
    assert model.output_shape == (None, len(facts["classes"]))
    assert model.count_params() == facts["parameters"]
    assert {str(weight.dtype) for weight in model.weights} == {"float32"}
    report = tfcaps.rem.sparsity(model)
    assert report == pytest.approx(facts["measured"]["sparsity"], abs=SUMS)


@pytest.mark.slow
@each_name
def test_network_is_as_good_as_its_card_says(name):
    source = facts_of(name)["dataset"]
    if source != "figures" and not (DATA / source).is_dir():
        pytest.skip(f"{source} is not in {DATA}; see TFDS_DATA_DIR")
    data_dir = str(DATA) if DATA.is_dir() else None
    data = datasets.load(source, data_dir)
    assert list(data.class_names) == facts_of(name)["classes"]
    images, labels = data.test.images[:], data.test.labels
    model = load_pretrained(name)
    named = model.predict(images, batch_size=256, verbose=0).argmax(-1)
    measured = facts_of(name)["measured"]["accuracy"]
    assert (named == labels).mean() == pytest.approx(measured, abs=_ROUNDING)


def test_what_cannot_be_loaded_is_named(copied):
    said = r"one of \['fashion_mnist', 'fashion_mnist_parts', 'figures', 'mn"
    with pytest.raises(ValueError, match=said):
        load_pretrained("cifar")
    with pytest.raises(ValueError, match="must be one of"):
        load_pretrained("../pretrained/mnist")
    path = copied / "mnist.keras"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(ValueError, match="SHA-256 is .* Install tfcaps again"):
        load_pretrained("mnist")
    path.unlink()
    with pytest.raises(FileNotFoundError, match="mnist.keras is missing"):
        load_pretrained("mnist")


def test_packing_changes_no_weight_and_makes_the_same_file_again(tmp_path):
    model = load_pretrained("figures")
    model.save(tmp_path / "model.keras")
    for name in ("one.keras", "two.keras"):
        pretrained.pack(tmp_path / "model.keras", tmp_path / name)
    one, two = ((tmp_path / f"{n}.keras").read_bytes() for n in ("one", "two"))
    assert one == two
    assert len(one) < (tmp_path / "model.keras").stat().st_size / 2
    again = keras.saving.load_model(tmp_path / "one.keras")
    for old, new in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(np.asarray(new), np.asarray(old))

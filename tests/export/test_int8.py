"""Models in int8: what the manifest says of them, and wrong images."""

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from export.run import int8_table
from tests.export.test_formats import IMAGES, OTHERS, needs
from tests.exports import pruned_capsnet
from tests.nightly import nightly
from tfcaps import export, models
from tfcaps.export import int8, runtimes
from tfcaps.export.versions import read_manifest


@pytest.fixture
def images(tmp_path, rng):
    arrays = {
        "x_train": rng.integers(0, 256, (40, 8, 8), dtype=np.uint8),
        "x_test": rng.integers(0, 256, (30, 8, 8), dtype=np.uint8),
        "y_test": rng.integers(0, 3, 30),
    }
    np.savez(tmp_path / "images.npz", **arrays)
    return tmp_path / "images.npz"


@pytest.mark.slow
@pytest.mark.parametrize("form", OTHERS)
def test_int8_is_written_beside_float32_and_measured(form, images, tmp_path):
    needs(form)
    if form == "openvino":
        pytest.importorskip("nncf")
    samples = int8.read_samples(images, IMAGES, "float32")
    folder = export.save(
        # LiteRT leaves small weights as they are.
        pruned_capsnet(filters=32, primary_types=8),
        tmp_path / "served" / "m",
        formats=[form],
        int8=samples,
    )
    about = read_manifest(folder)
    measured = about["int8"]
    assert (measured["calibration_images"], measured["test_images"]) == (40, 30)
    assert measured["levels"] == 11
    rows = measured["formats"][form]
    assert rows["float32"]["same_trees"] == rows["float32"]["same_codes"] == 1
    kinds = [runtimes.Model(folder, form, in_int8) for in_int8 in (False, True)]
    for row, model in zip(rows.values(), kinds, strict=True):
        assert {file.name for file in model.files} < set(about["files"])
        size = sum(file.stat().st_size for file in model.files)
        assert row["bytes"] == size
    assert 0.9 < rows["int8"]["same_codes"] <= 1
    lines = [line.split()[:3] for line in export.check(folder)]
    assert lines[-1] == [form, "in", "int8:"]
    plain, quantised = (
        model.load()("serving_default", samples.images)["lengths"]
        for model in kinds
    )
    assert 0 < np.abs(plain - quantised).max() < 0.1


@nightly
@pytest.mark.slow
def test_openvino_keeps_the_answers_of_many_filters(tmp_path):
    """With biases corrected the fast way, a fifth of the codes were others."""
    needs("openvino")
    pytest.importorskip("nncf")
    digits = load_digits()
    pixels = np.zeros((400, 28, 28), "uint8")
    for new, digit in zip(pixels, digits.images, strict=False):
        image = Image.fromarray((digit * 15.9).astype("uint8"))
        new[4:24, 4:24] = image.resize((20, 20), Image.Resampling.BILINEAR)
    pixels = pixels[..., None] / np.float32(255)
    samples = int8.Samples(pixels[:300], pixels[300:], digits.target[300:400])
    folder = export.save(
        models.load_pretrained("mnist"),
        tmp_path / "served" / "m",
        formats=["openvino"],
        int8=samples,
    )
    rows = read_manifest(folder)["int8"]["formats"]["openvino"]
    assert rows["int8"]["same_codes"] > 0.95


def test_trees_and_accuracy_are_counted(tmp_path, monkeypatch):
    """One of four trees has another code, another has another class."""
    plain = {
        "classes": np.array([0, 1, 1, 0]),
        "couplings": np.full((4, 5), 0.5, "float32"),
    }
    other = {
        "classes": np.array([0, 1, 0, 0]),
        "couplings": plain["couplings"].copy(),
    }
    other["couplings"][0, 2] = 0.7

    def load(model):
        return lambda signature, images: other if model.int8 else plain

    monkeypatch.setattr(runtimes.Model, "load", load)
    for file in ("model.onnx", "model.int8.onnx"):
        (tmp_path / file).write_bytes(bytes(7))
    pixels = np.zeros((4, *IMAGES), "float32")
    samples = int8.Samples(pixels, pixels, np.array([0, 1, 1, 1]))
    measured = int8.measure(["onnx"], tmp_path, samples, None, "midtread")
    rows = measured["formats"]["onnx"]
    assert rows["float32"]["accuracy"] == 0.75
    assert rows["int8"] == {
        "accuracy": 0.5,
        "same_trees": 0.5,
        "same_codes": 14 / 20,
        "bytes": 7,
    }
    assert "50.00%" in int8_table(measured).splitlines()[-1]


def test_pixels_become_what_clients_send(images):
    raw = int8.read_samples(images, IMAGES, "uint8")
    scaled = int8.read_samples(images, IMAGES, "float32")
    assert raw.images.dtype == np.uint8 and raw.images.shape == (30, *IMAGES)
    assert scaled.images.dtype == np.float32
    wanted = raw.calibration / np.float32(255)
    np.testing.assert_array_equal(scaled.calibration, wanted)
    with np.load(images) as arrays:
        given = map(bytes, arrays["x_test"])
        labels = dict(zip(given, arrays["y_test"], strict=True))
    assert [labels[bytes(pixels)] for pixels in raw.images] == [*raw.labels]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_test": None}, "x_test is not a file in the archive"),
        ({"x_train": np.zeros((4, 9, 8), "uint8")}, "cannot reshape array"),
        ({"x_train": np.zeros((4, 8, 8), "int64")}, "images are int64"),
        ({"y_test": np.zeros(3, "int64")}, "cannot reshape array of size 3"),
        ({"y_test": np.zeros(30)}, "y_test is float64"),
    ],
)
def test_wrong_images_are_one_sentence(images, change, message):
    with np.load(images) as arrays:
        arrays = {**arrays, **change}
    arrays = {name: a for name, a in arrays.items() if a is not None}
    np.savez(images, **arrays)
    match = rf"images \[8, 8, 1\] of uint8 or floats, and y_test, .*{message}"
    with pytest.raises(export.ExportError, match=match):
        int8.read_samples(images, IMAGES, "float32")

"""Exported models: what they answer, and what stands beside them."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from export import check
from export import run as command
from tests.commands import told_by
from tests.export.test_formats import CHECKS, needs
from tests.exports import pruned_capsnet
from tests.networks import tiny_capsnet
from tests.tolerance import SUMS
from tfcaps import export, rem
from tfcaps.export import checking
from tfcaps.export.versions import read_manifest
from tfcaps.ops import dequantize
from tfcaps.routing import ScaledDistanceRouting
from training.devices import dtype_policy

IMAGES = (8, 8, 1)
FILES = {
    "assets.extra/reference.npz",
    "fingerprint.pb",
    "saved_model.pb",
    "variables/variables.data-00000-of-00001",
    "variables/variables.index",
}


@pytest.fixture(scope="module")
def pruned():
    return pruned_capsnet()


@pytest.fixture(scope="module")
def exported(pruned, tmp_path_factory):
    return export.save(pruned, tmp_path_factory.mktemp("served") / "small")


def served(folder, signature, images):
    loaded = tf.saved_model.load(str(folder))
    outputs = loaded.signatures[signature](images=tf.constant(images))
    for name, value in outputs.items():
        assert value.dtype == (tf.int64 if name == "classes" else tf.float32)
    return {name: value.numpy() for name, value in outputs.items()}


def test_signatures_answer_what_the_model_does(pruned, exported, rng):
    images = rng.random((5, *IMAGES), dtype=np.float32)
    outputs = rem.capsule_outputs(pruned)(images)
    shown = rem.explanation(pruned)(images)
    wanted = {
        "serving_default": {**outputs, "classes": shown["classes"]},
        "explain": shown,
        "encode": outputs,
    }
    names = {
        "serving_default": {"lengths", "poses", "classes"},
        "explain": {"lengths", "classes", "couplings", "saliency"},
        "encode": {"poses"},
    }
    for signature, expected in wanted.items():
        answer = served(exported, signature, images)
        assert set(answer) == names[signature]
        for name, value in answer.items():
            np.testing.assert_allclose(value, expected[name], atol=SUMS)


def stored(folder):
    """Returns how many numbers the weights of a SavedModel have."""
    loaded = tf.saved_model.load(str(folder))
    weights = {w.ref(): int(tf.size(w)) for w in loaded.weights}
    return sum(weights.values())


@pytest.mark.slow
def test_only_the_compacted_weights_are_saved_and_each_once(pruned, exported):
    small = rem.compact(pruned)
    assert stored(exported) == small.count_params() < pruned.count_params()
    data = exported / "variables" / "variables.data-00000-of-00001"
    assert data.stat().st_size < 4 * small.count_params() + 4096


@pytest.mark.slow
def test_raw_pixels_are_divided_in_the_graph_of_any_precision(tmp_path, rng):
    with dtype_policy("mixed_float16"):
        model = tiny_capsnet()
    folder = export.save(model, tmp_path / "m", input_dtype="uint8")
    pixels = rng.integers(0, 256, (4, *IMAGES), dtype=np.uint8)
    answer = served(folder, "serving_default", pixels)  # all of float32
    expected = model(pixels.astype("float32") / 255)
    np.testing.assert_allclose(answer["lengths"], expected, atol=1e-3)
    assert read_manifest(folder)["input_dtype"] == "uint8"


@pytest.mark.slow
def test_quantised_couplings_can_be_exported(pruned, tmp_path, rng):
    mode = "midrise"
    folder = export.save(pruned, tmp_path / "m", levels=5, mode=mode)
    images = rng.random((4, *IMAGES), dtype=np.float32)
    answer = served(folder, "explain", images)
    levels = dequantize(np.arange(5), 5, mode=mode)
    apart = np.abs(answer["couplings"][..., np.newaxis] - levels)
    assert np.max(np.min(apart, axis=-1)) < 1e-6
    expected = rem.quantize_couplings(pruned, 5, mode=mode)(images)
    np.testing.assert_allclose(answer["lengths"], expected, atol=SUMS)
    about = read_manifest(folder)
    assert (about["levels"], about["mode"]) == (5, mode)


def test_the_manifest_tells_what_was_exported(exported):
    about = read_manifest(exported)
    assert set(about["files"]) == FILES
    assert about["model"] == "small"
    assert about["versions"]["keras"] == keras.__version__
    default = about["signatures"]["serving_default"]
    images = {"dtype": "float32", "shape": [-1, *IMAGES], "range": [0, 1]}
    assert default["inputs"] == {"images": images}
    assert default["outputs"]["poses"]["shape"] == [-1, 3, 4]


def test_images_of_the_reference_never_change():
    drawn = checking.draw_images(2, (2, 2, 1), "uint8")
    assert drawn.ravel().tolist() == [12, 23, 115, 41, 22, 1, 35, 39]
    scaled = checking.draw_images(2, (2, 2, 1), "float32")
    assert scaled.dtype == np.float32
    np.testing.assert_array_equal(scaled, drawn / np.float32(255))


@pytest.mark.slow
def test_a_model_whose_rows_depend_on_each_other_is_refused(tmp_path):
    routing = ScaledDistanceRouting(distance_scale="batch")
    model = tiny_capsnet(routing=routing)
    with pytest.raises(export.ExportError, match="asked alone, not with"):
        export.save(model, tmp_path / "served" / "m")
    assert not (tmp_path / "served").exists()


@pytest.mark.parametrize("formats", [[], ["coreml"]])
def test_unknown_formats_are_named(formats, pruned, tmp_path):
    with pytest.raises(ValueError, match="must be some of savedmodel, litert"):
        export.save(pruned, tmp_path / "m", formats=formats)


def test_a_network_without_capsules_is_refused(tmp_path):
    dense = [keras.Input((2,)), keras.layers.Dense(1)]
    keras.Sequential(dense).save(tmp_path / "dense.keras")
    flags = ("--run", tmp_path / "dense.keras", "--to", tmp_path / "s")
    told = told_by(command.main, *flags, status=2)
    assert "cannot be exported: The model" in told
    assert not (tmp_path / "s").exists()


def test_another_backend_is_told(monkeypatch, pruned, tmp_path):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="Received: jax. .* load it.$"):
        export.save(pruned, tmp_path / "m")


# ------------------------------------------------------------------ the command


@pytest.mark.slow
def test_a_run_tells_the_manifest_of_itself_and_flags_are_passed_on(
    pruned, tmp_path
):
    needs("onnx")
    run, served = tmp_path / "run", tmp_path / "served"
    run.mkdir()
    pruned.save(run / "model.keras")
    metrics = {"accuracy": 0.5, "entropy_bits": 1.5, "per_class": {}}
    files = {
        "config.json": {"dataset": "mine.npz", "rem": True, "data_dir": "/x"},
        "data.json": {"classes": ["cat", "dog", "eel"]},
        "environment.json": {"commit": "abc"},
        "rem.json": {"models": {"rem": metrics, "baseline": {"accuracy": 1.0}}},
    }
    for name, content in files.items():
        (run / name).write_text(json.dumps(content))
    printed = told_by(
        command.main, "--run", run, "--to", served, "--model-name", "net",
        "--version", 7, "--input-dtype", "uint8", "--levels", 11,
        "--format", "savedmodel", "onnx",
    ).splitlines()  # fmt: skip
    folder = served / "net" / "7"
    about = read_manifest(folder)
    assert about["dataset"] == "mine.npz"
    assert about["classes"] == ["cat", "dog", "eel"]
    assert about["metrics"] == {"accuracy": 0.5, "entropy_bits": 1.5}
    config = {"dataset": "mine.npz", "rem": True}
    assert about["run"] == {"config": config, "commit": "abc"}
    assert (about["input_dtype"], about["levels"]) == ("uint8", 11)
    assert about["formats"] == ["savedmodel", "onnx"]
    assert printed[-1] == f"exported to {folder}"
    passed = [*CHECKS, "onnx"]
    assert [line.split()[0] for line in printed[:-1]] == passed
    assert "/models/net" in (served / "models.config").read_text("utf-8")
    lines = told_by(check.main, folder).splitlines()
    assert [line.split()[0] for line in lines] == passed

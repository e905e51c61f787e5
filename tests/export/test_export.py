"""Exported models: what they answer, and how versions appear."""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from cli import UserError
from export import check, manifest, reference, sizes
from export import run as command
from export.model import export_model
from tests.commands import status_of
from tests.exports import pruned_capsnet, with_dead_units
from tests.networks import NETWORKS, SMALL_NETWORKS, tiny_capsnet
from tests.tolerance import SUMS
from tfcaps import layers, rem
from tfcaps.ops import dequantize
from training.devices import dtype_policy

IMAGES = (8, 8, 1)
FILES = {
    "assets.extra/reference.npz",
    "assets.extra/tf_serving_warmup_requests",
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
    """A pruned model's first version, with a TensorFlow Lite file."""
    to = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "_ROUNDS", (2, 2))
        return export_model(
            pruned, to, name="small", written_as=["savedmodel", "litert"]
        )


@pytest.fixture
def no_sizes(monkeypatch):
    """Leaves out the timing of variants."""
    monkeypatch.setattr("export.sizes.measure", lambda *args: {})
    monkeypatch.setattr("export.sizes.table", lambda rows: "")


def served(folder, signature, images):
    """Returns what a SavedModel answers."""
    loaded = tf.saved_model.load(str(folder))
    outputs = loaded.signatures[signature](images=tf.constant(images))
    return {name: value.numpy() for name, value in outputs.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_passes_its_checks_in_a_bare_interpreter(
    name, tmp_path, rng, no_sizes
):
    model = with_dead_units(SMALL_NETWORKS[name](), rng)
    lines = []
    export_model(model, tmp_path, name=name, log=lines.append)
    checks = [line.split()[0] for line in lines if line]
    for passed in ("manifest", "graph", "parity", "rows", "warmup"):
        assert passed in checks


@pytest.mark.slow
def test_signatures_answer_what_the_model_does(pruned, exported, rng):
    images = rng.random((5, *IMAGES), dtype=np.float32)
    outputs = rem.capsule_outputs(pruned)(images)
    shown = rem.explanation(pruned)(images)
    answer = served(exported, "serving_default", images)
    assert set(answer) == {"lengths", "poses", "classes"}
    assert answer["classes"].dtype == np.int64
    np.testing.assert_allclose(answer["lengths"], outputs["lengths"], atol=SUMS)
    np.testing.assert_allclose(answer["poses"], outputs["poses"], atol=SUMS)
    np.testing.assert_array_equal(answer["classes"], shown["classes"])
    explained = served(exported, "explain", images)
    assert set(explained) == {"lengths", "classes", "couplings", "saliency"}
    for key in ("lengths", "couplings", "saliency"):
        np.testing.assert_allclose(explained[key], shown[key], atol=SUMS)
    encoded = served(exported, "encode", images)
    assert set(encoded) == {"poses"}
    np.testing.assert_allclose(encoded["poses"], outputs["poses"], atol=SUMS)


def test_only_the_compacted_weights_are_saved_and_each_once(pruned, exported):
    small = rem.compact(pruned)
    loaded = tf.saved_model.load(str(exported))
    sizes = [int(tf.size(variable)) for variable in loaded.stored]
    assert sum(sizes) == small.count_params() < pruned.count_params()
    data = exported / "variables" / "variables.data-00000-of-00001"
    assert data.stat().st_size < 4 * small.count_params() + 4096


def test_raw_pixels_are_divided_in_the_graph(pruned, tmp_path, rng, no_sizes):
    folder = export_model(pruned, tmp_path, name="m", images="uint8")
    pixels = rng.integers(0, 256, (4, *IMAGES), dtype=np.uint8)
    answer = served(folder, "serving_default", pixels)
    expected = pruned(pixels.astype("float32") / 255)
    np.testing.assert_allclose(answer["lengths"], expected, atol=SUMS)
    assert manifest.read(folder)["images"] == "uint8"


@pytest.mark.slow
def test_outputs_are_float32_also_from_mixed_precision(tmp_path, rng, no_sizes):
    with dtype_policy("mixed_float16"):
        model = tiny_capsnet()
    folder = export_model(model, tmp_path, name="half")
    images = rng.random((2, *IMAGES), dtype=np.float32)
    for signature in ("serving_default", "explain", "encode"):
        for name, value in served(folder, signature, images).items():
            expected = np.int64 if name == "classes" else np.float32
            assert value.dtype == expected, (signature, name)


@pytest.mark.parametrize("mode", ["midtread", "midrise"])
def test_quantised_couplings_can_be_exported(
    mode, pruned, tmp_path, rng, no_sizes
):
    folder = export_model(
        pruned, tmp_path, name="m", levels=5, levels_mode=mode
    )
    images = rng.random((4, *IMAGES), dtype=np.float32)
    answer = served(folder, "explain", images)
    levels = dequantize(np.arange(5), 5, mode=mode)
    apart = np.abs(answer["couplings"][..., np.newaxis] - levels)
    assert np.max(np.min(apart, axis=-1)) < 1e-6
    expected = rem.quantize_couplings(pruned, 5, mode=mode)(images)
    np.testing.assert_allclose(answer["lengths"], expected, atol=SUMS)
    about = manifest.read(folder)
    assert (about["levels"], about["levels_mode"]) == (5, mode)


@pytest.mark.slow
def test_without_compaction_the_weights_keep_their_shapes(
    pruned, tmp_path, no_sizes
):
    folder = export_model(pruned, tmp_path, name="m", compacted=False)
    loaded = tf.saved_model.load(str(folder))
    sizes = [int(tf.size(variable)) for variable in loaded.stored]
    assert sum(sizes) == pruned.count_params()


@pytest.mark.slow
def test_a_sequential_model_can_be_exported(tmp_path, rng, no_sizes):
    model = keras.Sequential(
        [
            keras.Input(IMAGES, name="pictures"),
            layers.PrimaryCaps(2, 4, kernel_size=5, strides=2),
            layers.ClassCaps(3, 4),
        ]
    )
    folder = export_model(model, tmp_path, name="m")
    images = rng.random((2, *IMAGES), dtype=np.float32)
    answer = served(folder, "serving_default", images)
    poses = np.asarray(model(images))
    np.testing.assert_allclose(answer["poses"], poses, atol=SUMS)
    lengths = np.linalg.norm(poses, axis=-1)
    np.testing.assert_allclose(answer["lengths"], lengths, atol=SUMS)


@pytest.mark.slow
def test_labels_and_decoder_are_left_out(tmp_path, rng, no_sizes):
    model = tiny_capsnet(decoder=True, routing="regularized")
    folder = export_model(model, tmp_path, name="m")
    images = rng.random((2, *IMAGES), dtype=np.float32)
    answer = served(folder, "serving_default", images)
    expected = rem.encoder(model)(images)
    np.testing.assert_allclose(answer["lengths"], expected, atol=SUMS)


def test_manifest_tells_what_was_exported(pruned, exported):
    about = manifest.check(exported)
    assert set(about["files"]) == FILES | {"model.tflite"}
    assert about["model"] == "small"
    assert about["sparsity"] == pytest.approx(rem.sparsity(pruned))
    assert about["versions"]["keras"] == keras.__version__
    assert about["graph"]["tensorflow"] == tf.__version__
    assert about["graph"]["min_consumer"] > 0
    default = about["signatures"]["serving_default"]
    images = {"dtype": "float32", "shape": [-1, *IMAGES]}
    assert default["inputs"] == {"images": images}
    assert default["outputs"]["poses"]["shape"] == [-1, 3, 4]


def test_dense_stripped_and_compacted_are_measured_side_by_side(
    pruned, exported
):
    rows = manifest.read(exported)["sizes"]
    assert list(rows) == ["dense", "stripped", "compacted"]
    dense, stripped, compacted = rows.values()
    assert dense["parameters"] == stripped["parameters"]
    assert stripped["parameters"] == pruned.count_params()
    assert compacted["parameters"] == rem.compact(pruned).count_params()
    assert dense["nonzero"] > stripped["nonzero"] >= compacted["nonzero"]
    for row in rows.values():
        assert row["bytes"] > row["gzip_bytes"] > 0
        assert set(row["milliseconds"]) == {"1", "32"}
        assert min(row["milliseconds"].values()) > 0


@pytest.mark.slow
def test_a_dense_model_is_not_measured(tmp_path):
    folder = export_model(tiny_capsnet(), tmp_path, name="m")
    assert "sizes" not in manifest.read(folder)


@pytest.mark.slow
def test_server_configs_list_every_model(pruned, tmp_path, no_sizes):
    from google.protobuf import text_format
    from tensorflow_serving.config import model_server_config_pb2

    (tmp_path / "not-a-model").mkdir()
    for name in ("second", "first"):
        export_model(pruned, tmp_path, name=name)
    text = (tmp_path / "models.config").read_text("utf-8")
    config = text_format.Parse(
        text, model_server_config_pb2.ModelServerConfig()
    )
    models = config.model_config_list.config
    assert [(m.name, m.base_path) for m in models] == [
        ("first", "/models/first"),
        ("second", "/models/second"),
    ]
    batching = (tmp_path / "batching.config").read_text("utf-8")
    allowed = [
        int(line.split(": ")[1])
        for line in batching.splitlines()
        if line.startswith("allowed_batch_sizes")
    ]
    assert allowed == sorted(allowed) and allowed[0] == 1
    assert f"max_batch_size {{ value: {allowed[-1]} }}" in batching
    assert "prometheus" in (tmp_path / "monitoring.config").read_text("utf-8")


def test_images_of_the_reference_never_change():
    drawn = reference.draw_images(2, (2, 2, 1), "uint8")
    assert drawn.ravel().tolist() == [12, 23, 115, 41, 22, 1, 35, 39]
    scaled = reference.draw_images(2, (2, 2, 1), "float32")
    assert scaled.dtype == np.float32
    np.testing.assert_array_equal(scaled, drawn / np.float32(255))


@pytest.mark.slow
def test_a_run_tells_the_manifest_of_itself(pruned, tmp_path, no_sizes, capsys):
    run = tmp_path / "run"
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
    arguments = ["--run", str(run), "--to", str(tmp_path / "served")]
    assert command.main(arguments) == 0
    folder = tmp_path / "served" / "dr_capsnet" / "1"
    about = manifest.check(folder)
    assert about["dataset"] == "mine.npz"
    assert about["classes"] == ["cat", "dog", "eel"]
    assert about["metrics"] == {"accuracy": 0.5, "entropy_bits": 1.5}
    config = {"dataset": "mine.npz", "rem": True}
    assert about["run"] == {"config": config, "commit": "abc"}
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == f"exported to {folder}"
    assert printed[-2].startswith("warmup")


@pytest.mark.slow
def test_the_command_needs_no_backend(pruned, tmp_path):
    pruned.save(tmp_path / "model.keras")
    done = subprocess.run(
        [
            sys.executable, str(Path(command.__file__)),
            "--run", str(tmp_path / "model.keras"),
            "--to", str(tmp_path / "served"),
        ],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert manifest.check(tmp_path / "served" / "dr_capsnet" / "1")


@pytest.mark.slow
def test_the_command_passes_its_flags_on(pruned, tmp_path, no_sizes, capsys):
    pruned.save(tmp_path / "model.keras")
    arguments = ["--run", str(tmp_path / "model.keras")]
    arguments += ["--to", str(tmp_path / "served"), "--model-name", "net"]
    arguments += ["--version", "7", "--images", "uint8", "--levels", "11"]
    arguments += ["--levels-mode", "midrise", "--no-compact", "--tflite"]
    assert command.main(arguments) == 0
    folder = tmp_path / "served" / "net" / "7"
    about = manifest.check(folder)
    assert (about["images"], about["levels"]) == ("uint8", 11)
    assert about["levels_mode"] == "midrise"
    assert about["classes"] is None and about["metrics"] is None
    assert (folder / "model.tflite").is_file()
    capsys.readouterr()
    arguments = [str(folder)]
    assert check.main(arguments) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    expected = ["manifest", "graph", "parity", "rows", "warmup", "litert"]
    assert names == expected


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"--run": "missing"}, "neither a run folder with a model.keras nor"),
        ({"--run": "broken.keras"}, "is not a readable Keras model"),
        ({"--run": "broken-run"}, "broken-run/rem.json is not JSON"),
        ({"--run": "odd-run"}, "odd-run/config.json is not a file of a run"),
        ({"--version": "0"}, "'0' is not a whole number from 1 to 92233720"),
        ({"--version": "one"}, "'one' is not a whole number from 1 to"),
        ({"--version": str(2**63)}, "is not a whole number from 1 to"),
        ({"--levels": "1"}, "'1' is not a whole number from 2 to 256"),
        ({"--images": "int8"}, "invalid choice: 'int8'"),
        ({"--model-name": "../up"}, "must be a plain folder name"),
        ({"--model-name": ".hidden"}, "must be a plain folder name"),
        ({"--to": "broken.keras"}, "is not a folder"),
        ({"--run": "dense.keras"}, "cannot be exported: The model"),
        ({"--wrong": "1"}, "unrecognized arguments: --wrong 1"),
    ],
)
def test_mistakes_are_one_line_and_status_2(
    pruned, tmp_path, monkeypatch, capsys, flags, message
):
    monkeypatch.chdir(tmp_path)
    pruned.save("model.keras")
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save(
        "dense.keras"
    )
    (tmp_path / "broken.keras").write_bytes(b"x")
    for run, file, text in (
        ("broken-run", "rem.json", "{"),
        ("odd-run", "config.json", "[]"),
    ):
        (tmp_path / run).mkdir()
        pruned.save(f"{run}/model.keras")
        (tmp_path / run / file).write_text(text)
    given = {"--run": "model.keras", "--to": "served", **flags}
    arguments = [part for pair in given.items() for part in pair]
    assert status_of(command.main, *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1 and error.startswith("export/run.py: error:")
    assert not (tmp_path / "served").exists()


@pytest.mark.slow
def test_a_model_whose_rows_depend_on_each_other_is_refused(tmp_path, no_sizes):
    from tfcaps.routing import ScaledDistanceRouting

    routing = ScaledDistanceRouting(distance_scale="batch")
    model = tiny_capsnet(routing=routing)
    with pytest.raises(UserError, match="^rows: .* asked alone"):
        export_model(model, tmp_path / "served", name="m")
    assert not (tmp_path / "served").exists()


def test_the_guide_shows_what_was_measured():
    root = Path(__file__).parents[2]
    measured = json.loads((root / "results" / "serving.json").read_text())
    rows = measured["sizes"]
    guide = (root / "docs" / "guides" / "serve.md").read_text("utf-8")
    _, _, rest = guide.partition("results/serving.json -->\n")
    shown, _, _ = rest.partition("\n<!-- end of sizes -->")
    assert shown == sizes.table(rows)
    share = rows["compacted"]["gzip_bytes"] / rows["dense"]["gzip_bytes"]
    assert f"{100 * share:.0f} % of the dense size" in guide

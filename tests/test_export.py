"""Exported models: signature, parity without tfcaps, publishing."""

import subprocess
import sys

import keras
import numpy as np
import pytest

import tfcaps
from export import run as export
from tests.networks import tiny_capsnet
from tfcaps import rem
from tfcaps.cli import UserError, run_command

_CLIENT = """
import sys
import numpy as np, tensorflow as tf
folder, arrays = sys.argv[1:]
loaded = tf.saved_model.load(folder)
serve = loaded.signatures["serving_default"]
names = [v.name for v in loaded.variables]
assert not [n for n in names if "mask" in n or "adam" in n.lower()], names
inputs = dict(np.load(arrays))
outputs = {}
for key, images in inputs.items():
    for name, value in serve(images=tf.constant(images)).items():
        outputs[f"{key}_{name}"] = value.numpy()
assert not [m for m in sys.modules if m.split(".")[0] == "tfcaps"]
np.savez(arrays, **outputs)
print(sorted(serve.structured_input_signature[1]), serve.inputs[0].shape)
"""


@pytest.fixture(scope="module")
def pruned():
    """A model that was trained with masks, and stripped."""
    keras.utils.set_random_seed(0)
    model = tiny_capsnet()
    model.compile("adam", tfcaps.losses.MarginLoss(), jit_compile=False)
    rem.prune_low_magnitude(model, lambda step: 0.6)
    model.fit(
        np.random.default_rng(0).random((12, 8, 8, 1)),
        np.arange(12) % 3,
        verbose=0,
        callbacks=[rem.UpdatePruningStep()],
    )
    return rem.strip_pruning(model)


def test_a_process_without_tfcaps_gets_the_same_numbers(pruned, tmp_path, rng):
    target = export.export_model(pruned, tmp_path / "served", name="small")
    assert target == tmp_path / "served" / "small" / "1"
    inputs = {
        f"batch{n}": rng.random((n, 8, 8, 1), dtype=np.float32)
        for n in (1, 3, 32)
    }
    np.savez(tmp_path / "arrays.npz", **inputs)
    printed = subprocess.run(
        [sys.executable, "-c", _CLIENT, target, tmp_path / "arrays.npz"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    ).stdout
    assert printed.strip() == "['images'] (None, 8, 8, 1)"
    served = dict(np.load(tmp_path / "arrays.npz"))
    outputs = rem.capsule_outputs(pruned)
    for key, images in inputs.items():
        expected = outputs(images)
        for name in ("lengths", "poses"):
            np.testing.assert_allclose(
                served.pop(f"{key}_{name}"), expected[name], atol=1e-5
            )
        classes = np.argmax(expected["lengths"], axis=-1)
        np.testing.assert_array_equal(served.pop(f"{key}_classes"), classes)
    assert not served


def test_nothing_in_the_graph_needs_xla_or_python(pruned, tmp_path):
    target = export.export_model(pruned, tmp_path, name="small")
    graph = (target / "saved_model.pb").read_bytes()
    for forbidden in (b"_XlaMustCompile", b"XlaLaunch", b"PyFunc"):
        assert forbidden not in graph


def test_versions_count_up_and_are_never_overwritten(pruned, tmp_path):
    first = export.export_model(pruned, tmp_path, name="m")
    second = export.export_model(pruned, tmp_path, name="m")
    assert [p.name for p in (first, second)] == ["1", "2"]
    with pytest.raises(UserError, match="exists and is not overwritten"):
        export.export_model(pruned, tmp_path, name="m", version=2)
    names = sorted(p.name for p in (tmp_path / "m").iterdir())
    assert names == ["1", "2"]


def test_a_failed_export_leaves_nothing_behind(pruned, tmp_path, monkeypatch):
    def fail(model, folder):
        (folder / "saved_model.pb").write_bytes(b"half")
        raise RuntimeError("disk")

    monkeypatch.setattr(export, "_write_saved_model", fail)
    with pytest.raises(RuntimeError, match="disk"):
        export.export_model(pruned, tmp_path, name="m")
    assert not list(tmp_path.iterdir())


def test_a_failed_export_spares_what_others_published(
    pruned, tmp_path, monkeypatch
):
    def fail(model, folder):
        (folder.parent / "7").mkdir()  # as another process would
        raise RuntimeError("disk")

    monkeypatch.setattr(export, "_write_saved_model", fail)
    with pytest.raises(RuntimeError, match="disk"):
        export.export_model(pruned, tmp_path, name="m")
    assert [p.name for p in (tmp_path / "m").iterdir()] == ["7"]


def test_the_command_exports_keras_files(pruned, tmp_path, capsys):
    pruned.save(tmp_path / "model.keras")
    arguments = ["--run", str(tmp_path), "--to", str(tmp_path / "served")]
    status = run_command(export._make_parser(), export._export, arguments)
    assert status == 0
    target = tmp_path / "served" / "dr_capsnet" / "1"
    assert capsys.readouterr().out == f"exported to {target}\n"
    assert (target / "saved_model.pb").is_file()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"--run": "missing"}, "neither a run folder with a model.keras nor"),
        ({"--run": "broken.keras"}, "is not a readable Keras model"),
        ({"--version": "0"}, "--version must be at least 1, not 0"),
        ({"--version": "one"}, "invalid int value: 'one'"),
        ({"--model-name": "../up"}, "must be a plain folder name"),
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
    given = {"--run": "model.keras", "--to": "served", **flags}
    arguments = [part for pair in given.items() for part in pair]
    try:
        status = run_command(export._make_parser(), export._export, arguments)
    except SystemExit as stopped:
        status = stopped.code
    error = capsys.readouterr().err
    assert status == 2
    assert message in error
    assert error.count("\n") == 1 and error.startswith("export/run.py: error:")
    assert not (tmp_path / "served").exists()

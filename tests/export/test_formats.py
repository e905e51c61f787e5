"""Models in other formats: every network answers as in Keras, broken files."""

import errno
import sys

import keras
import pytest
import tensorflow  # noqa: F401 (on JAX conftest.py leaves this file out)

from export import run as exporting
from tests import bad_files
from tests.exports import copied, pruned_capsnet, signed_again, with_dead_units
from tests.networks import SMALL_NETWORKS, tiny_capsnet
from tests.nightly import nightly
from tfcaps import export, layers
from tfcaps.export import runtimes
from tfcaps.export.checking import REFERENCE
from tfcaps.export.versions import read_manifest

CHECKS = ["manifest", "graph", "savedmodel"]
OTHERS = [name for name in runtimes.FORMATS if name != "savedmodel"]
IMAGES = (8, 8, 1)
# Besides DR-CapsNet, which networks each format has in CI; `NIGHTLY=1` has all.
IN_CI = {
    "savedmodel": {
        "deepcaps",
        "gamma_capsnet",
        "backbone_constellation_capsnet",
    },
    "litert": {"efficient_conv_capsnet"},
    "onnx": {"efficient_capsnet", "constellation_capsnet"},
    "openvino": {"em_capsnet"},
}


def marks(name, form):
    late = name not in IN_CI[form] and name != "dr_capsnet"
    return (pytest.mark.slow, *([nightly] if late else ()))


def needs(form):
    """Skips a test where the packages of a format are not installed."""
    for module in exporting.FORMATS[form].split():
        pytest.importorskip(module, reason=f"{form} needs {module}")


@pytest.fixture(scope="module", params=OTHERS)
def exported(request, tmp_path_factory):
    needs(request.param)
    to = tmp_path_factory.mktemp("served") / "small"
    return request.param, export.save(
        pruned_capsnet(), to, formats=[request.param]
    )


@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param(name, form, marks=marks(name, form))
        for name in SMALL_NETWORKS
        for form in runtimes.FORMATS
    ],
)
def test_every_network_answers_as_in_keras(name, form, tmp_path, rng):
    needs(form)
    model = with_dead_units(SMALL_NETWORKS[name](), rng)
    lines = []
    folder = export.save(
        model, tmp_path / name, formats=[form], log=lines.append
    )
    passed = [line.split()[0] for line in lines]
    if form == "savedmodel":
        assert passed == CHECKS
        return
    assert passed == ["manifest", form]
    files = {file.name for file in runtimes.Model(folder, form).files}
    assert set(read_manifest(folder)["files"]) == files | {REFERENCE}


@pytest.mark.slow
@pytest.mark.parametrize("spoil", bad_files.EVERY[:3], ids=lambda f: f.__name__)
def test_a_broken_file_is_one_sentence(exported, tmp_path, spoil):
    form, folder = exported
    for file in runtimes.Model(folder, form).files:
        copy = copied(folder, tmp_path / file.name)
        spoil(copy / file.name)
        with pytest.raises(export.ExportError) as error:
            list(export.check(signed_again(copy)))
        message = str(error.value)
        assert "export the model anew" in message and "\n" not in message


def test_a_missing_runtime_is_not_called_a_broken_file(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(export.ExportError, match="onnxruntime is not installe"):
        runtimes.Model(tmp_path, "onnx").load()


def test_a_server_is_not_given_what_it_cannot_load(tmp_path):
    version = tmp_path / "m" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").touch()
    with pytest.raises(export.ExportError, match="add savedmodel to the form"):
        export.save(tiny_capsnet(), tmp_path / "m", formats=["litert"])
    assert [path.name for path in (tmp_path / "m").iterdir()] == ["1"]


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (OSError(errno.ENOSPC, "No space"), OSError, "No space.*: .*/to/m"),
        (
            RuntimeError("basic_ios::clear: iostream error"),
            OSError,
            "is the disk full.*: .*/to/m",
        ),
        (
            ValueError("no such operation\n  in a long trace"),
            export.ExportError,
            "^litert: .* be converted: no such operation in a long trace$",
        ),
    ],
    ids=["disk in python", "disk in c++", "operation"],
)
def test_what_fails_is_one_sentence_and_leaves_nothing(
    tmp_path, monkeypatch, error, kind, told
):
    def fail(*args, **options):
        raise error

    monkeypatch.setattr(keras.Model, "export", fail)
    with pytest.raises(kind, match=told):
        export.save(tiny_capsnet(), tmp_path / "to" / "m", formats=["litert"])
    assert not (tmp_path / "to").exists()


@pytest.mark.slow
def test_networks_for_other_inputs_are_exported(tmp_path):
    for form in OTHERS:
        needs(form)
    signals = keras.Input((64, 1))
    features = keras.layers.Conv1D(6, 9, strides=4, activation="relu")(signals)
    poses = layers.ClassCaps(3, 4)(keras.layers.Reshape((14, 6))(features))
    model = keras.Model(signals, layers.Length()(poses))
    formats = [*runtimes.FORMATS]
    folder = export.save(model, tmp_path / "any", formats=formats)
    explained = read_manifest(folder)["signatures"]["explain"]["outputs"]
    assert set(explained) == {"lengths", "classes", "couplings"}  # no rows

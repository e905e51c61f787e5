"""Models in other formats: every network answers as in Keras, broken files."""

import json
import subprocess
import sys

import numpy as np
import pytest

from cli import UserError
from export import check_job, conversion, formats, manifest, reference, runtime
from export import run as command
from export.model import export_model
from tests.commands import status_of
from tests.exports import copied, pruned_capsnet, signed_again, with_dead_units
from tests.networks import SMALL_NETWORKS, tiny_capsnet
from tests.nightly import nightly
from tfcaps import rem

OTHERS = [name for name in formats.FORMATS if name != "savedmodel"]
IMAGES = (8, 8, 1)
# OpenVINO takes seconds to prepare any network.
QUICK = {("dr_capsnet", "litert"), ("dr_capsnet", "onnx")}
# Besides DR-CapsNet, which networks each format has in CI; `NIGHTLY=1` has all.
IN_CI = {
    "litert": {"efficient_conv_capsnet", "gamma_capsnet"},
    "onnx": {"deepcaps", "efficient_capsnet"},
    "openvino": {"em_capsnet"},
}


def marks(name, form):
    """Returns the marks of a network in a format."""
    if (name, form) in QUICK:
        return ()
    late = name not in IN_CI[form] and name != "dr_capsnet"
    return (pytest.mark.slow, *([nightly] if late else ()))


def needs(name, *, int8=False):
    """Skips a test where what a format needs is not installed."""
    form = formats.FORMATS[name]
    for module in f"{form.modules} {form.int8 if int8 else ''}".split():
        pytest.importorskip(module, reason=f"{name} needs {module}")


@pytest.fixture(scope="module", params=OTHERS)
def exported(request, tmp_path_factory):
    """A format, and a pruned model's first version in it."""
    needs(request.param)
    to = tmp_path_factory.mktemp("served")
    model = pruned_capsnet()
    return request.param, export_model(
        model, to, name="small", written_as=[request.param]
    )


@pytest.mark.parametrize(
    ("name", "format_"),
    [
        pytest.param(name, format_, marks=marks(name, format_))
        for name in SMALL_NETWORKS
        for format_ in OTHERS
    ],
)
def test_every_network_answers_as_in_keras(name, format_, tmp_path, rng):
    needs(format_)
    model = with_dead_units(SMALL_NETWORKS[name](), rng)
    lines = []
    export_model(
        model, tmp_path, name=name, written_as=[format_], log=lines.append
    )
    assert [line.split()[0] for line in lines] == ["manifest", format_]


@pytest.mark.slow
def test_a_version_is_whole_and_tells_what_it_is(exported):
    name, folder = exported
    about = manifest.check(folder)
    form = formats.FORMATS[name]
    assert set(about["files"]) == {*form.files, reference.NAME}
    assert about["formats"] == [name]
    assert set(about["signatures"]) == set(formats.OUTPUTS)
    for signature, described in about["signatures"].items():
        images = {"dtype": "float32", "shape": [-1, *IMAGES]}
        assert described["inputs"] == {"images": images}
        assert set(described["outputs"]) == set(formats.OUTPUTS[signature])
    assert not (folder.parents[1] / "models.config").exists()


@pytest.mark.slow
def test_answers_come_from_a_process_without_tensorflow(exported, tmp_path):
    name, folder = exported
    if name == "litert":
        pytest.importorskip("ai_edge_litert")
    images = reference.draw_images(2, IMAGES, "float32")
    np.save(tmp_path / "images.npy", images)
    code = f"""
import sys; from pathlib import Path; import numpy as np
from export import formats
answer = formats.module({name!r}).load(Path({str(folder)!r}))
outputs = answer("explain", np.load({str(tmp_path / "images.npy")!r}))
np.savez({str(tmp_path / "outputs.npz")!r}, **outputs)
assert not {{"tensorflow", "keras"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    with np.load(tmp_path / "outputs.npz") as outputs:
        came = dict(outputs)
    shown = rem.explanation(pruned_capsnet())(images)
    assert came["classes"].dtype == np.int64
    np.testing.assert_array_equal(came["classes"], shown["classes"])
    for key in ("lengths", "couplings", "saliency"):
        np.testing.assert_allclose(came[key], shown[key], atol=1e-5)


@pytest.mark.slow
def test_other_answers_are_refused(exported, monkeypatch):
    name, folder = exported
    answers = reference.read(folder)
    answers[3, "explain"]["couplings"][1, 2] += 1e-3
    monkeypatch.setattr(reference, "read", lambda folder: answers)
    with pytest.raises(UserError, match=f"^{name}: .* differs by 0.001"):
        list(check_job.check(folder))


def broken_copies(name, folder, tmp_path):
    """Yields copies of a version of which one file is broken."""
    for number, file in enumerate(formats.FORMATS[name].files):
        for kind in ("missing", "empty", "half", "foreign"):
            copy = copied(folder, tmp_path / f"{number}-{kind}")
            content = (copy / file).read_bytes()
            (copy / file).unlink()
            if kind != "missing":
                half = content[: len(content) // 2]
                noise = np.random.default_rng(0).bytes(len(content))
                broken = {"empty": b"", "half": half, "foreign": noise}[kind]
                (copy / file).write_bytes(broken)
            yield file, kind, signed_again(copy)


@pytest.mark.slow
def test_a_broken_file_is_one_sentence(exported, tmp_path):
    name, folder = exported
    for file, kind, copy in broken_copies(name, folder, tmp_path):
        if (file, kind) == ("model.bin", "foreign"):
            continue  # weights like others: the manifest's SHA-256 tells
        with pytest.raises(UserError) as error:
            conversion.check(name, copy, manifest.read(copy))
        message = str(error.value)
        assert message.startswith(f"{name}: ") and "\n" not in message
        assert "export the model anew" in message, (file, kind)


@pytest.mark.slow
def test_a_file_of_another_network_is_one_sentence(exported, tmp_path):
    name, folder = exported
    other = export_model(
        tiny_capsnet(5), tmp_path, name="other", written_as=[name]
    )
    copy = copied(folder, tmp_path)
    for file in formats.FORMATS[name].files:
        (copy / file).write_bytes((other / file).read_bytes())
    with pytest.raises(UserError, match=f"^{name}: .* other names or shapes"):
        conversion.check(name, copy, manifest.read(copy))


def test_outputs_of_a_graph_that_is_not_ours_are_named():
    with pytest.raises(ValueError, match="no output poses; it has lengths, y"):
        formats.outputs_of("encode", ["y", "lengths"])
    names = ["couplings", "classes", "lengths", "poses"]
    assert formats.outputs_of("explain", names) == [
        "lengths", "classes", "couplings",
    ]  # fmt: skip


def test_a_process_that_dies_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "model.onnx").touch()
    (tmp_path / "dies.py").write_text("raise SystemExit('out of memory')")
    monkeypatch.setattr(runtime, "_SCRIPT", tmp_path / "dies.py")
    model = runtime.Model("onnx", tmp_path)
    request = runtime.Request(model, "explain", np.zeros((1, *IMAGES)))
    with pytest.raises(UserError, match="ended with status 1: out of memory$"):
        runtime.run([request])


@pytest.mark.slow
def test_formats_stand_beside_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr("export.sizes.measure", lambda *args: {})
    monkeypatch.setattr("export.sizes.table", lambda rows: "")
    needs("onnx")
    pruned_capsnet().save(tmp_path / "model.keras")
    flags = ["--run", str(tmp_path / "model.keras"), "--model-name", "m"]
    flags += ["--to", str(tmp_path / "served"), "--images", "uint8"]
    flags += ["--levels", "11"]
    both = ["--format", "savedmodel", "onnx", "--tflite"]
    assert command.main([*flags, *both]) == 0
    folder = tmp_path / "served" / "m" / "1"
    assert manifest.read(folder)["formats"] == ["savedmodel", "onnx", "litert"]
    lines = [line.split()[0] for line in check_job.check(folder)]
    assert lines[-3:] == ["warmup", "onnx", "litert"]
    config = (tmp_path / "served" / "models.config").read_text("utf-8")
    assert "/models/m" in config


@pytest.mark.slow
def test_a_folder_from_before_there_were_formats_is_checked(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("export.sizes.measure", lambda *args: {})
    monkeypatch.setattr("export.sizes.table", lambda rows: "")
    written_as = ["savedmodel", "litert"]
    folder = export_model(
        pruned_capsnet(), tmp_path, name="m", written_as=written_as
    )
    about = manifest.read(folder)
    del about["formats"]
    manifest.write(folder, about)
    lines = [line.split()[0] for line in check_job.check(folder)]
    assert lines[-1] == "litert"


def test_a_server_is_not_given_what_it_cannot_load(tmp_path):
    version = tmp_path / "m" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").touch()
    with pytest.raises(UserError, match="add savedmodel to --format"):
        export_model(tiny_capsnet(), tmp_path, name="m", written_as=["litert"])
    assert [path.name for path in (tmp_path / "m").iterdir()] == ["1"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--format", "coreml"], "invalid choice: 'coreml'"),
        (["--int8", "x.npz"], "--int8 needs --format litert, onnx or openvino"),
        (["--tflite", "--int8", "x.npz"], "there is no file x.npz"),
    ],
)
def test_mistakes_are_one_line_and_status_2(
    tmp_path, monkeypatch, capsys, flags, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.keras").touch()
    arguments = ["--run", "model.keras", "--to", "served", *flags]
    assert status_of(command.main, *arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "missing", "extra"),
    [("onnx", "tf2onnx", "onnx"), ("openvino", "openvino", "openvino")],
)
def test_a_missing_package_is_one_sentence(
    tmp_path, monkeypatch, capsys, name, missing, extra
):
    (tmp_path / "model.keras").touch()
    monkeypatch.setattr("cli._is_installed", lambda module: module != missing)
    flags = ["--run", str(tmp_path / "model.keras"), "--to", "served"]
    assert command.main([*flags, "--format", name]) == 2
    error = capsys.readouterr().err
    assert f"this needs {missing}, not installed here." in error
    assert f'pip install --editable ".[{extra}]"' in error


def test_a_runtime_that_is_missing_is_not_called_a_broken_file(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("cli._is_installed", lambda name: name == "keras")
    with pytest.raises(UserError, match=r'needs onnxruntime, .*"\.\[onnx\]"'):
        conversion.check("onnx", tmp_path, {})


def test_a_model_that_cannot_be_converted_is_one_sentence(
    tmp_path, monkeypatch
):
    def write(graphs, folder):
        raise ValueError("no such operation\n  in a long trace")

    litert = formats.module("litert")
    monkeypatch.setattr(litert, "write", write)
    with pytest.raises(
        UserError, match="^litert: .* be converted: no such operation$"
    ):
        export_model(
            tiny_capsnet(), tmp_path / "to", name="m", written_as=["litert"]
        )
    assert not (tmp_path / "to").exists()


def test_nothing_of_a_format_is_imported_for_another():
    code = (
        "import sys; from export import run; run.make_parser();"
        "import json; print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {
        "tensorflow", "keras", "onnx", "onnxruntime", "openvino",
        "ai_edge_litert", "nncf",
    }  # fmt: skip

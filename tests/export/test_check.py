"""Exported folders that are broken on purpose: each is caught by name."""

import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from cli import UserError
from export import check, check_job, manifest, probe, reference, session, warmup
from export.model import export_model
from export.saved_model import check_graph
from tests.exports import copied, pruned_capsnet, signed_again

DATA = "variables/variables.data-00000-of-00001"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    to = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("export.sizes.measure", lambda *args: {})
        patch.setattr("export.sizes.table", lambda rows: "")
        return export_model(pruned_capsnet(), to, name="small")


@pytest.fixture
def broken(exported, tmp_path):
    """A copy of an exported folder."""
    return copied(exported, tmp_path)


def failure(folder, **settings):
    """Returns what the check says of a folder that is broken."""
    with pytest.raises(UserError) as caught:
        list(check_job.check(folder, **settings))
    return str(caught.value)


@pytest.mark.slow
def test_a_whole_folder_passes(exported):
    names = [line.split()[0] for line in check_job.check(exported)]
    assert names == ["manifest", "graph", "parity", "rows", "warmup"]


def test_a_folder_passes_wherever_it_is(exported, tmp_path):
    shutil.copytree(exported, tmp_path / "elsewhere" / "12")
    list(check_job.check(tmp_path / "elsewhere" / "12"))


# ------------------------------------------------------- files and manifest


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "name",
    [DATA, "variables/variables.index", "saved_model.pb", reference.NAME],
)
@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda path: path.unlink(), "is missing"),
        (truncate, r"has \d+ bytes instead of \d+"),
        (flip_a_byte, "was changed: its SHA-256 is another"),
    ],
    ids=["missing", "truncated", "flipped"],
)
def test_a_broken_file_is_named(broken, name, break_it, message):
    break_it(broken / name)
    assert re.match(f"manifest: .*{name} {message}", failure(broken))


def test_a_new_file_is_named(broken):
    (broken / "notes.txt").write_text("x")
    assert "notes.txt does not belong to the export" in failure(broken)


@pytest.mark.parametrize(
    "break_it",
    [
        truncate,
        flip_a_byte,
        lambda path: path.write_text("[]"),
        lambda path: path.write_text('{"files": {}, "sha256": "0"}'),
        lambda path: path.write_bytes(b"\xff\xfe"),
    ],
)
def test_a_changed_manifest_is_noticed(broken, break_it):
    break_it(broken / manifest.NAME)
    assert re.match("manifest: .* was changed", failure(broken))


def test_a_folder_without_manifest_is_no_export(broken):
    (broken / manifest.NAME).unlink()
    assert "has no manifest.json" in failure(broken)


def test_a_manifest_of_other_signatures_is_noticed(broken):
    about = manifest.read(broken)
    about["signatures"].pop("encode")
    manifest.write(broken, about)
    assert re.match("graph: the signatures of .* manifest", failure(broken))


# ------------------------------------- broken before the manifest was written


def test_truncated_variables_do_not_load(broken):
    truncate(broken / DATA)
    assert failure(signed_again(broken)).startswith("load: ")


def test_missing_variables_load_but_do_not_run(broken):
    (broken / "variables" / "variables.index").unlink()
    assert re.match("(load|run): ", failure(signed_again(broken)))


def change_weights(folder, change):
    """Changes every weight of an exported folder."""
    prefix = str(folder / "variables" / "variables")
    reader = tf.train.load_checkpoint(prefix)
    names = sorted(reader.get_variable_to_shape_map())
    values = [
        change(value) if np.asarray(value).dtype == np.float32 else value
        for value in map(reader.get_tensor, names)
    ]
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=values,
    )
    return signed_again(folder)


@pytest.mark.parametrize(
    "change",
    [lambda value: value + 0.01, lambda value: value * np.nan],
    ids=["shifted", "not a number"],
)
def test_other_weights_give_other_answers(broken, change):
    message = failure(change_weights(broken, change))
    assert re.match("parity: .* an answer differs by", message)


def test_a_broken_reference_is_named(broken):
    (broken / reference.NAME).write_bytes(b"PK\x03\x04")
    message = failure(signed_again(broken))
    assert re.match("parity: .*reference.npz is missing or broken", message)


# ---------------------------------------------------------------- the warm-up


def rewrite_warmup(folder, change):
    """Changes every warm-up request of a folder."""
    from tensorflow_serving.apis import prediction_log_pb2

    path = str(folder / warmup.NAME)
    records = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
    with tf.io.TFRecordWriter(path) as writer:
        for record in records:
            log = prediction_log_pb2.PredictionLog.FromString(record)
            change(log.predict_log.request)
            writer.write(log.SerializeToString())
    return signed_again(folder)


def double_precision(request):
    request.inputs["images"].dtype = tf.float64.as_datatype_enum
    request.inputs["images"].double_val.append(0.5)


def other_name(request):
    request.inputs["pixels"].CopyFrom(request.inputs["images"])
    del request.inputs["images"]


def other_size(request):
    request.inputs["images"].tensor_shape.dim[1].size = 9


def other_signature(request):
    request.model_spec.signature_name = "decode"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            double_precision,
            r"gives in record 1 float64 images \[8, 8, 1\], not",
        ),
        (other_name, "gives in record 1 the inputs pixels, not images"),
        (other_size, r"gives in record 1 float32 images \[9, 8, 1\], not"),
        (other_signature, "asks in record 1 for no signature"),
    ],
)
def test_a_wrong_warmup_request_is_named(broken, change, message):
    folder = rewrite_warmup(broken, change)
    assert re.match(f"warmup: .* {message}", failure(folder))


@pytest.mark.parametrize("content", [b"", b"broken" * 9])
def test_a_broken_warmup_file_is_named(broken, content):
    (broken / warmup.NAME).write_bytes(content)
    assert failure(signed_again(broken)).startswith("warmup: ")


def test_too_many_warmup_requests_are_refused(broken):
    signatures = check_graph(broken)
    warmup.write(broken, "m", signatures, batches=[1] * 334)
    message = failure(signed_again(broken))
    assert "has 1002 records, not 1 to 1000" in message


def test_a_warmup_request_that_cannot_be_run_is_named(exported, monkeypatch):
    images = np.zeros((1, 9, 9, 9), "float32")
    monkeypatch.setattr(warmup, "read", lambda *args: [("encode", images)])
    assert failure(exported).startswith("warmup: run: ")


def test_warmup_asks_every_signature_for_one_image_and_many(exported):
    requests = warmup.read(exported, check_graph(exported))
    asked = {(name, len(images)) for name, images in requests}
    signatures = ("serving_default", "explain", "encode")
    assert asked == {(name, n) for name in signatures for n in (1, 32)}


# ----------------------------------------------------- the loader and others


def test_a_request_that_does_not_fit_is_told(exported):
    signature = check_graph(exported)["encode"]
    images = np.zeros((1, 9, 9, 9), "float32")
    request = session.Request(exported, signature, {"images": images})
    with pytest.raises(session.RunError, match="^run: "):
        session.run([request])


def test_the_interpreter_that_runs_it_has_neither_tensorflow_nor_numpy():
    import subprocess
    import sys

    for package in ("tensorflow", "numpy", "keras"):
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", f"import {package}"],
            capture_output=True,
        )
        assert b"ModuleNotFoundError" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not probe.is_buildable(), reason="g++ is not installed")
def test_the_loader_of_the_server_gives_the_same_answers(exported, tmp_path):
    *_, last = check_job.check(exported, with_probe=True)
    assert last.startswith("probe")
    broken = copied(exported, tmp_path)
    truncate(broken / DATA)
    signature = check_graph(broken)["encode"]
    images = np.zeros((1, 8, 8, 1), "float32")
    request = session.Request(broken, signature, {"images": images})
    with pytest.raises(UserError, match="^probe: .*broken"):
        probe.run([request])


def test_openvino_gives_the_same_answers(exported, monkeypatch):
    # Its own oneDNN would heed it, while OpenVINO counts on what there is.
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    openvino = pytest.importorskip(
        "openvino", reason="openvino, another engine, is not installed"
    )
    model = openvino.compile_model(openvino.convert_model(exported), "CPU")
    for (batch, signature), expected in reference.read(exported).items():
        if signature != "serving_default":
            continue
        images = reference.draw_images(batch, (8, 8, 1), "float32")
        outputs = {
            name: value
            for port, value in model([images]).items()
            for name in port.get_names() & expected.keys()
        }
        for name in ("lengths", "poses"):
            np.testing.assert_allclose(outputs[name], expected[name], atol=1e-5)


@pytest.mark.parametrize("folder", ["missing", "empty"])
def test_mistakes_of_the_command_are_one_line(tmp_path, capsys, folder):
    (tmp_path / "empty").mkdir()
    arguments = [str(tmp_path / folder)]
    assert check.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("export/check.py: error: ")
    assert error.count("\n") == 1

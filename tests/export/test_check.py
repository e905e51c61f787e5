"""Exported folders that are broken on purpose: each is caught by name."""

import re
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from export import check as command
from tests.exports import copied, pruned_capsnet, signed_again
from tests.networks import tiny_capsnet
from tests.tolerance import SUMS
from tfcaps import export
from tfcaps.export import checking, runtimes, serving
from tfcaps.export.graph import check_graph
from tfcaps.export.versions import MANIFEST

DATA = "variables/variables.data-00000-of-00001"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    to = tmp_path_factory.mktemp("served")
    return export.save(pruned_capsnet(), to / "small")


@pytest.fixture
def broken(exported, tmp_path):
    """A copy of an exported folder."""
    return copied(exported, tmp_path)


def failure(folder):
    """Returns the complaint of the check about a broken folder."""
    with pytest.raises(export.ExportError) as caught:
        list(export.check(folder))
    return str(caught.value)


def test_a_whole_folder_passes_wherever_it_is(exported, tmp_path):
    shutil.copytree(exported, tmp_path / "elsewhere" / "12")
    lines = export.check(tmp_path / "elsewhere" / "12")
    names = [line.split()[0] for line in lines]
    assert names == ["manifest", "graph", "warmup", "savedmodel"]


# ------------------------------------------------------- files and manifest


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "name",
    [DATA, "variables/variables.index", "saved_model.pb", checking.REFERENCE],
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
    break_it(broken / MANIFEST)
    assert re.match("manifest: .* was changed", failure(broken))


def test_a_folder_without_manifest_is_no_export(broken):
    (broken / MANIFEST).unlink()
    assert "has no manifest.json" in failure(broken)


# ------------------------------------- broken before the manifest was written


def change_weights(change):
    def change_all(folder):
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

    return change_all


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda f: truncate(f / DATA), "savedmodel: .* cannot be loaded, so"),
        (
            lambda f: (f / "variables/variables.index").unlink(),
            "savedmodel: .* cannot be (loaded|run), so",
        ),
        (
            change_weights(lambda value: value + 0.01),
            "savedmodel: .* an answer differs by 0",
        ),
        (
            change_weights(lambda value: value * np.nan),
            "savedmodel: .* an answer differs by nan",
        ),
        (
            lambda f: (f / checking.REFERENCE).write_bytes(b"PK\x03\x04"),
            "reference: .*reference.npz is missing or broken",
        ),
        (
            lambda f: (f / serving.WARMUP).write_bytes(b""),
            "warmup: .* does not ask for the signatures of the model",
        ),
        (
            lambda f: (f / serving.WARMUP).unlink(),
            "warmup: .* does not ask for the signatures of the model",
        ),
        (
            lambda f: serving.write_warmup(f, "other", check_graph(f)),
            "warmup: .* does not ask for the signatures of the model",
        ),
    ],
    ids=[
        "half of the weights", "no weights", "other weights", "no numbers",
        "no reference", "empty warm-up", "no warm-up", "foreign warm-up",
    ],
)  # fmt: skip
def test_a_folder_that_was_written_wrong_is_named(broken, break_it, message):
    break_it(broken)
    assert re.match(message, failure(signed_again(broken)))


# -------------------------------------------------------------------- the graph


class Calling(keras.layers.Layer):
    """Calls a function that no server can."""

    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = function

    def call(self, inputs):
        outputs = self.function(inputs)
        outputs.set_shape(inputs.shape)
        return outputs

    def compute_output_shape(self, input_shape):
        return input_shape


def in_numpy(images):
    return tf.numpy_function(lambda x: 2 * x, [images], tf.float32)


def in_python(images):
    return tf.py_function(lambda x: 2 * x, [images], tf.float32)


by_xla = tf.function(lambda x: 2 * x, jit_compile=True)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (by_xla, "graph: .* must be compiled by XLA"),
        (in_numpy, "graph: .* calls a Python function .*PyFunc"),
        (in_python, "graph: .* calls a Python function .*EagerPyFunc"),
    ],
    ids=["xla", "numpy_function", "py_function"],
)
def test_what_needs_xla_or_python_is_not_exported(tmp_path, function, message):
    images = keras.Input((8, 8, 1))
    tensor = Calling(function)(images)
    for layer in tiny_capsnet().layers[1:]:
        tensor = layer(tensor)
    model = keras.Model(images, tensor)
    with pytest.raises(export.ExportError, match=f"^{message}"):
        export.save(model, tmp_path / "served" / "m", compacted=False)
    assert not (tmp_path / "served").exists()


def saved(folder, function, shape=(None, 2), dtype=tf.float32, names=None):
    """Writes a SavedModel of one function under all signatures."""
    spec = tf.TensorSpec(shape, dtype, name="images")
    traced = tf.function(function, [spec], autograph=False)
    names = names or ("serving_default", "explain", "encode")
    tf.saved_model.save(tf.Module(), str(folder), dict.fromkeys(names, traced))
    return folder


def same(x):
    return {"poses": x}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shape": (4, 2)}, "batch: .* images has a batch of 4"),
        ({"function": lambda x: {"poses": x[:3]}}, None),
        (
            {"function": lambda x: {"poses": tf.reshape(x, (3, -1))}},
            "batch: .* poses has a batch of 3",
        ),
        (
            {"function": lambda x: {"poses": tf.reduce_sum(x)}},
            "batch: .* poses has a batch missing",
        ),
        (
            {"shape": (None, None)},
            "graph: .* images is float32 .* do not expect",
        ),
        ({"dtype": tf.float16}, "graph: .* images is float16"),
        (
            {"function": lambda x: {"classes": x}},
            "graph: .* classes is float32",
        ),
        (
            {"names": ["encode"]},
            "graph: .* must have the signatures serving_default, explain",
        ),
    ],
)
def test_signatures_that_clients_do_not_expect(tmp_path, settings, message):
    folder = saved(tmp_path / "m", **{"function": same, **settings})
    if message is None:
        check_graph(folder)
        return
    with pytest.raises(export.ExportError, match=f"^{message}"):
        check_graph(folder)


def functions_forget(graph):
    for function in graph.library.function:
        function.attr.pop("_XlaMustCompile", None)


def nodes_forget(graph):
    for holder in (graph, *graph.library.function):
        for node in getattr(holder, "node_def", None) or holder.node:
            node.attr.pop("_XlaMustCompile", None)


def only_launch(graph):
    functions_forget(graph)
    nodes_forget(graph)
    graph.node.add(name="compiled", op="XlaLaunch")


@pytest.mark.parametrize(
    "change", [functions_forget, nodes_forget, only_launch]
)
def test_every_sign_of_xla_is_enough(tmp_path, change):
    folder = saved(tmp_path / "m", lambda x: {"poses": by_xla(x)})
    path = folder / "saved_model.pb"
    content = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    change(content.meta_graphs[0].graph_def)
    path.write_bytes(content.SerializeToString())
    with pytest.raises(export.ExportError, match="^graph: .* compiled by XLA"):
        check_graph(folder)


def test_a_server_with_xla_off_fails_where_python_would_not(tmp_path):
    folder = saved(tmp_path / "m", lambda x: {"poses": by_xla(x)})
    traced = tf.saved_model.load(str(folder)).signatures["encode"]
    assert traced(tf.ones((1, 2)))["poses"].numpy().tolist() == [[2.0, 2.0]]
    model = runtimes.Model(folder, "savedmodel")
    request = runtimes.Request(model, "encode", np.ones((1, 2), "float32"))
    with pytest.raises(export.ExportError, match="XLA compilation disabled"):
        runtimes.run([request])


def test_a_file_that_is_no_graph_is_named(tmp_path):
    with pytest.raises(export.ExportError, match="has no saved_model.pb"):
        check_graph(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(b"\xff" * 9)
    with pytest.raises(export.ExportError, match="is no SavedModel"):
        check_graph(tmp_path)


# ------------------------------------------------------------------ the answers


@pytest.fixture
def expected(rng):
    return {
        "classes": np.array([2, 0]),
        "lengths": np.array([[0.1, 0.2, 0.9], [0.8, 0.1, 0.2]], "float32"),
        "couplings": rng.random((2, 5), dtype=np.float32),
    }


def compare(expected, name, added, *, rounded=False):
    came = {key: value.copy() for key, value in expected.items()}
    came[name][1] += came[name].dtype.type(added)
    return checking.compare("x", [(expected, came)], rounded=rounded)


def test_couplings_may_be_farther_off_than_other_answers(expected):
    assert compare(expected, "lengths", 0) == 0
    assert compare(expected, "lengths", 5e-6) == pytest.approx(5e-6, abs=SUMS)
    found = compare(expected, "couplings", 5e-5)
    assert found == pytest.approx(5e-5, abs=SUMS)
    assert compare(expected, "couplings", 0.1, rounded=True) == 0


@pytest.mark.parametrize(
    ("name", "added", "message"),
    [
        ("lengths", 5e-5, "more than 1e-05, or 0.0001 of couplings"),
        ("couplings", 2e-4, "more than 1e-05, or 0.0001 of couplings"),
        ("lengths", np.nan, "differs by nan"),
        ("couplings", np.nan, "differs by nan"),
        ("classes", 1, "differs by inf"),
    ],
)
def test_other_answers_are_refused(expected, name, added, message):
    with pytest.raises(export.ExportError, match=message):
        compare(expected, name, added)


def test_the_process_that_answers_loads_neither_tensorflow_nor_keras(
    exported, monkeypatch, tmp_path
):
    source = Path(runtimes.answer.__file__).read_text("utf-8")
    spy = tmp_path / "answer.py"
    spy.write_text(
        f"{source}\n    assert not {{'tensorflow', 'keras'}} & set(sys.modules)"
    )
    monkeypatch.setattr(runtimes.answer, "__file__", str(spy))
    list(export.check(exported))


@pytest.mark.parametrize("folder", ["missing", "empty"])
def test_mistakes_of_the_command_are_one_line(tmp_path, capsys, folder):
    (tmp_path / "empty").mkdir()
    assert command.main([str(tmp_path / folder)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("export/check.py: error: ")
    assert error.count("\n") == 1

"""Exported folders that are broken on purpose: each is caught by name."""

import re
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.exports import copied, pruned_capsnet, signed_again
from tests.networks import tiny_capsnet
from tfcaps import export
from tfcaps.export import checking
from tfcaps.export.versions import MANIFEST

DATA = "variables/variables.data-00000-of-00001"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    to = tmp_path_factory.mktemp("served")
    return export.save(pruned_capsnet(), to / "small")


@pytest.fixture
def broken(exported, tmp_path):
    return copied(exported, tmp_path)


def failure(folder):
    with pytest.raises(export.ExportError) as caught:
        list(export.check(folder))
    return str(caught.value)


def test_a_whole_folder_passes_wherever_it_is(exported, tmp_path):
    shutil.copytree(exported, tmp_path / "elsewhere" / "12")
    lines = export.check(tmp_path / "elsewhere" / "12")
    names = [line.split()[0] for line in lines]
    assert names == ["manifest", "graph", "savedmodel"]


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "break_it", "message"),
    [
        (DATA, lambda path: path.unlink(), "is missing"),
        ("saved_model.pb", truncate, "was changed: its SHA-256 is another"),
        (checking.REFERENCE, flip_a_byte, "was changed: its SHA-256"),
        ("notes.txt", lambda p: p.write_text("x"), "does not belong to the"),
        (MANIFEST, truncate, "was changed"),
        (MANIFEST, lambda path: path.write_text("[]"), "was changed"),
        (MANIFEST, lambda path: path.write_bytes(b"\xff\xfe"), "was changed"),
    ],
)
def test_a_broken_file_is_named(broken, name, break_it, message):
    break_it(broken / name)
    assert re.match(f"manifest: .*{name} {message}", failure(broken))


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
        (lambda f: truncate(f / DATA), "cannot be run, so it is broken"),
        (
            lambda f: (f / "variables/variables.index").unlink(),
            "cannot be run, so it is broken",
        ),
        (change_weights(lambda v: v + 0.01), "an answer differs by 0"),
        (change_weights(lambda v: v * np.nan), "an answer differs by nan"),
    ],
    ids=["half of the weights", "no weights", "other weights", "no numbers"],
)
def test_a_folder_that_was_written_wrong_is_named(broken, break_it, message):
    break_it(broken)
    assert re.match(f"savedmodel: .* {message}", failure(signed_again(broken)))


# -------------------------------------------------------------------- the graph


class Calling(keras.layers.Layer):
    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = function

    def call(self, inputs):
        outputs = self.function(inputs)
        outputs.set_shape(inputs.shape)
        return outputs

    def compute_output_shape(self, input_shape):
        return input_shape


by_xla = tf.function(lambda x: 2 * x, jit_compile=True)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (by_xla, "must be compiled by XLA"),
        (
            lambda x: tf.numpy_function(lambda x: 2 * x, [x], tf.float32),
            "calls a Python function .*PyFunc",
        ),
        (
            lambda x: tf.py_function(lambda x: 2 * x, [x], tf.float32),
            "calls a Python function .*EagerPyFunc",
        ),
    ],
    ids=["xla", "numpy_function", "py_function"],
)
def test_what_no_server_can_run_is_not_exported(tmp_path, function, message):
    images = keras.Input((8, 8, 1))
    tensor = Calling(function)(images)
    for layer in tiny_capsnet().layers[1:]:
        tensor = layer(tensor)
    model = keras.Model(images, tensor)
    with pytest.raises(export.ExportError, match=f"^graph: .* {message}"):
        export.save(model, tmp_path / "served" / "m", compacted=False)
    assert not (tmp_path / "served").exists()


# ------------------------------------------------------------------ the answers

"""Exported folders that are broken on purpose: each is caught by name."""

import re
import shutil
from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import bad_files
from tests.exports import copied, pruned_capsnet, signed_again
from tests.networks import SMALL_NETWORKS, tiny_capsnet
from tfcaps import export
from tfcaps.export import checking
from tfcaps.export.tolerance import tolerance_of
from tfcaps.export.versions import MANIFEST
from training.devices import dtype_policy

DATA = "variables/variables.data-00000-of-00001"
BROKEN = "cannot be run, so it is broken"


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


@pytest.mark.parametrize("spoil", bad_files.EVERY, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", [DATA, "saved_model.pb", checking.REFERENCE])
def test_a_broken_file_is_named(broken, name, spoil):
    spoil(broken / name)
    gone = not (broken / name).is_file()
    told = "is missing" if gone else "was changed: its SHA-256 is another"
    assert re.match(f"manifest: .*{name} {told}", failure(broken))


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("notes.txt", b"", "manifest: .*notes.txt does not belong to the exp"),
        (MANIFEST, b"", f"manifest: .*{MANIFEST} was changed"),
        (MANIFEST, b'{"files', f"manifest: .*{MANIFEST} was changed"),
        (MANIFEST, b"[]", f"manifest: .*{MANIFEST} was changed"),
        (MANIFEST, b"\xff\xfe", f"manifest: .*{MANIFEST} was changed"),
        (MANIFEST, None, ".*has no manifest.json"),
    ],
)
def test_a_file_more_and_a_broken_manifest_are_named(
    broken, name, content, told
):
    if content is None:
        (broken / name).unlink()
    else:
        (broken / name).write_bytes(content)
    assert re.match(told, failure(broken))


# ------------------------------------- broken before the manifest was written


def change_weights(change, folder):
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


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda f: bad_files.truncated(f / DATA), BROKEN),
        (lambda f: bad_files.missing(f / "variables/variables.index"), BROKEN),
        (partial(change_weights, lambda v: v + 0.01), "an answer differs by 0"),
        (
            partial(change_weights, lambda v: np.nan * v),
            "returns what is not a number",
        ),
    ],
    ids=["half of the weights", "no weights", "other weights", "no numbers"],
)
def test_a_folder_that_was_written_wrong_is_named(broken, break_it, message):
    break_it(broken)
    assert re.match(f"savedmodel: .* {message}", failure(signed_again(broken)))


# -------------------------------------------------------------------- the graph


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
    tensor = keras.layers.Lambda(
        lambda x: tf.ensure_shape(function(x), x.shape), images.shape[1:]
    )(images)
    for layer in tiny_capsnet().layers[1:]:
        tensor = layer(tensor)
    model = keras.Model(images, tensor)
    with pytest.raises(export.ExportError, match=f"^graph: .* {message}"):
        export.save(model, tmp_path / "served" / "m")
    assert not (tmp_path / "served").exists()


# --------------------------------------------------------------- the tolerance


@pytest.mark.parametrize(
    ("name", "size", "apart", "passes"),
    [
        ("poses", 100.0, 5e-4, True),  # in pixels
        ("poses", 1.0, 5e-4, False),
        ("poses", 0.01, 5e-6, True),
        ("couplings", 1.0, 5e-5, True),
        ("lengths", 1.0, 5e-5, False),
        ("lengths", 1.0, np.nan, False),
    ],
)
def test_differences_count_by_the_size_of_an_output(name, size, apart, passes):
    expected = np.full((2, 3), size)
    came = {name: expected + apart}
    rows = checking._rows_apart({name: expected}, came, 1e-5)
    assert bool((rows <= 1e-5).all()) == passes


def test_the_tolerance_follows_from_depth_and_type():
    with dtype_policy("mixed_bfloat16"):
        half = tolerance_of(tiny_capsnet())
    shallow, deep = tiny_capsnet(), SMALL_NETWORKS["efficient_capsnet"]()
    assert 1e-5 == tolerance_of(shallow) < tolerance_of(deep) < 1e-4 < half

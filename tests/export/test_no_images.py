"""Exports of networks for signals, tables and volumes, in every format."""

import keras
import numpy as np
import pytest

import tfcaps
from cli import UserError
from export import formats, int8, reference
from export.model import export_model
from tests.export.test_formats import needs
from tfcaps import rem


def ends(inputs, children, **settings):
    """Returns a network from children to three lengths."""
    poses = tfcaps.layers.ClassCaps(3, 4, **settings)(children)
    return keras.Model(inputs, tfcaps.layers.Length()(poses), name="any")


def of_signals():
    signals = keras.Input((64, 1))
    features = keras.layers.Conv1D(6, 9, strides=4, activation="relu")(signals)
    return ends(signals, keras.layers.Reshape((14, 6))(features))


def of_tables():
    rows = keras.Input((20,))
    features = keras.layers.Dense(24, activation="relu")(rows)
    return ends(rows, keras.layers.Reshape((6, 4))(features))


def of_volumes():
    volumes = keras.Input((6, 6, 6, 1))
    features = keras.layers.Conv3D(4, 3, strides=3)(volumes)
    return ends(volumes, keras.layers.Reshape((8, 4))(features))


def of_one_row():
    signals = keras.Input((64, 1))
    row = keras.layers.Reshape((1, 64, 1))(signals)
    primary = tfcaps.layers.PrimaryCaps(3, 4, (1, 9), strides=4)
    return ends(signals, primary(row))


NETWORKS = {
    "signals": of_signals,
    "tables": of_tables,
    "volumes": of_volumes,
    "one row": of_one_row,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("form", formats.FORMATS)
def test_each_format_is_written_and_checked(name, form, tmp_path):
    if form != "savedmodel":
        needs(form)
    lines = []
    export_model(
        NETWORKS[name](),
        tmp_path,
        name="any",
        written_as=[form],
        log=lines.append,
    )
    checks = [line.split()[0] for line in lines]
    served = ["manifest", "graph", "parity", "rows", "warmup"]
    assert checks == (served if form == "savedmodel" else ["manifest", form])


@pytest.mark.parametrize("name", NETWORKS)
def test_the_reference_is_drawn_in_the_shape_of_the_input(name, tmp_path):
    model = NETWORKS[name]()
    reference.write(model, tmp_path, "float32")
    answers = reference.read(tmp_path)
    assert answers[3, "explain"]["lengths"].shape == (3, 3)
    assert "saliency" not in answers[3, "explain"]  # there are no rows
    assert rem.explanation(model).output["couplings"].shape[0] is None


def test_numbers_of_images_are_as_before():
    # References in folders that were exported before are compared with these.
    drawn = reference.draw_images(2, (2, 1, 1), "uint8")
    assert drawn.ravel().tolist() == [12, 23, 46, 16]


def test_samples_of_signals_are_taken_as_they_are(tmp_path):
    file = tmp_path / "signals.npz"
    signals = np.random.default_rng(0).random((9, 64, 1), dtype=np.float32)
    for given in (signals, signals[..., 0]):
        np.savez(file, x_train=given, x_test=given, y_test=np.arange(9) % 3)
        assert int8.read(file, (64, 1), "float32").images.shape == (9, 64, 1)
    with pytest.raises(UserError, match=r"takes images \[20\]"):
        int8.read(file, (20,), "float32")

"""The search for the fewest levels that keep the accuracy."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from tests.networks import (
    SMALL_NETWORKS,
    draw_weights,
    outputs_of,
    tiny_capsnet,
)
from tfcaps import rem
from tfcaps.layers import ClassCaps, Length
from tfcaps.routing import DynamicRouting

CANDIDATES = (11, 2, 5)


@pytest.fixture(scope="module")
def model():
    return draw_weights(
        tiny_capsnet(4, filters=6, primary_dim=8, primary_kernel_size=4),
        1,
        class_caps=3.0,
    )


@pytest.fixture(scope="module")
def data(model):
    images = np.random.default_rng(0).random((60, 8, 8, 1), dtype=np.float32)
    # What the model says, so that its own accuracy is 1.
    return images, outputs_of(model, images).argmax(-1)


@pytest.fixture(scope="module")
def search(model, data):
    return rem.find_levels(model, data, CANDIDATES, batch_size=25)


def test_rows_are_those_of_evaluate(model, data, search):
    assert [row["levels"] for row in search.rows] == [2, 5, 11]
    report = rem.evaluate(model, data, 5, batch_size=25)
    assert search.rows[1] == report.to_dict()
    assert report.accuracy == 1.0


@pytest.mark.parametrize(
    ("lost", "levels"),
    [(1.9, 11), (2, 5), (6, 2)],
)
def test_fewest_levels_within_the_tolerance_are_found(
    lost, levels, model, data, search
):
    wrong = [
        round(60 * (1.0 - row["accuracy_quantized"])) for row in search.rows
    ]
    assert wrong == [6, 2, 1]
    found = rem.find_levels(
        model, data, CANDIDATES, tolerance=lost / 60, batch_size=60
    )
    assert (found.levels, found.tolerance) == (levels, lost / 60)


def test_tolerance_is_not_missed_by_a_rounding_error(model, data):
    images, labels = data
    five = outputs_of(rem.quantize_couplings(model, 5), images)
    same = np.flatnonzero(five.argmax(-1) == labels)
    labels = labels.copy()
    labels[same[:14]] = (labels[same[:14]] + 1) % 4
    assert 46 / 60 - 2 / 60 > 44 / 60
    found = rem.find_levels(model, (images, labels), (5,), tolerance=2 / 60)
    assert found.rows[0]["accuracy"] == 46 / 60
    assert found.rows[0]["accuracy_quantized"] == 44 / 60
    assert found.levels == 5


def test_search_prints_and_saves(search, tmp_path):
    assert search.levels is None
    text = str(search)
    assert "     2       90.00" in text
    assert text.endswith(
        "No number of levels keeps the accuracy of 100.00 % but for 0.1 points."
    )
    found = dataclasses.replace(search, levels=5)
    assert "\n5 levels keep the accuracy of 100.00 %" in str(found)
    search.save(tmp_path / "levels.json")
    saved = json.loads((tmp_path / "levels.json").read_text())
    assert saved["levels"] is None and len(saved["rows"]) == 3


def test_levels_may_be_midrise_and_data_read_once(model, data):
    images, labels = data
    batches = ((images[k : k + 20], labels[k : k + 20]) for k in (0, 20, 40))
    search = rem.find_levels(model, batches, (4,), mode="midrise")
    report = rem.evaluate(model, data, 4, mode="midrise")
    assert search.rows[0]["entropy_bits"] == report.entropy_bits
    assert search.rows[0]["accuracy_quantized"] == report.accuracy_quantized


def test_every_routed_layer_is_rounded(rng):
    model = draw_weights(
        SMALL_NETWORKS["multilayer_capsnet"](),
        2,
        hidden_caps1=8.0,
        class_caps=30.0,
    )
    shape = (20, *model.input_shape[1:])
    data = rng.random(shape, dtype=np.float32), np.arange(20) % 3
    search = rem.find_levels(model, data, (3,))
    expected = rem.evaluate(model, data, (3, 3)).to_dict()
    assert search.rows == [expected]
    assert expected["levels_per_layer"] == {"hidden_caps1": 3, "class_caps": 3}


def of_pairs(weight):
    """Each class has two children of eight, which agree on it."""
    capsules = keras.Input((8, 2), name="images")
    layer = ClassCaps(4, 2, use_bias=False, routing=DynamicRouting(5))
    model = keras.Model(capsules, Length()(layer(capsules)))
    maps = np.zeros((8, 4, 2, 2), "float32")
    maps[np.arange(8), np.arange(8) // 2] = weight * np.eye(2)
    layer.transformation.assign(maps)
    classes = np.arange(12) % 4
    poses = np.zeros((12, 8, 2), "float32")
    poses[:, :, 0] = np.arange(8) // 2 == classes[:, None]
    return model, (poses, classes)


def test_levels_that_make_trees_trivial_are_not_chosen():
    # Of four levels the one at 1/3 is that of all children.
    search = rem.find_levels(*of_pairs(0.9), (4, 21))
    assert [row["accuracy_quantized"] for row in search.rows] == [1.0, 1.0]
    assert [row["trivial"] for row in search.rows] == [True, False]
    assert search.levels == 21 and "0.0  trivial" in str(search)
    # Trees that are trivial anyway keep nothing from being chosen.
    search = rem.find_levels(*of_pairs(0.0), (2, 21))
    assert all(row["trivial"] for row in search.rows)
    assert search.levels == 2


def test_wrong_arguments_are_errors(model, data):
    with pytest.raises(ValueError, match="`candidates` must be some numbers"):
        rem.find_levels(model, data, ())
    with pytest.raises(ValueError, match=r"in \[2, 256\].* Received: levels=1"):
        rem.find_levels(model, data, (5, 1))
    for tolerance in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="`tolerance` must be at least 0"):
            rem.find_levels(model, data, (5,), tolerance=tolerance)
    with pytest.raises(ValueError, match="The data set has no samples"):
        rem.find_levels(model, [], (5,))

"""Keys of types: pooled over places, the same when an object is shifted."""

import math

import keras
import numpy as np
import pytest

from tests.networks import (
    SMALL_NETWORKS,
    draw_weights,
    outputs_of,
    tiny_capsnet,
)
from tfcaps import layers, rem
from tfcaps.rem.parse.dictionary import type_dictionary

LEVELS = 11


def pooled_by_hand(keys, types):
    """Returns the maximum over places of each type, `[n, t]`."""
    # The order of children is row, column, type.
    return np.stack([keys[:, t::types].max(axis=1) for t in range(types)], 1)


def entropy_by_hand(keys):
    rows = [tuple(key) for key in np.asarray(keys).tolist()]
    shares = [rows.count(row) / len(rows) for row in {*rows}]
    return -sum(p * math.log2(p) for p in shares)


# ---------------------------------------------------------------- dictionaries


def test_keys_that_do_not_fit_the_grid_are_an_error():
    trees = rem.CouplingDictionary(1)
    trees.update(np.zeros((2, 8), int), [0, 0])
    with pytest.raises(
        ValueError, match="each child of the grid, 12. Received"
    ):
        type_dictionary(trees, (2, 2, 3))


# ------------------------------------------------------------------ evaluation


@pytest.fixture(scope="module")
def model():
    return draw_weights(
        tiny_capsnet(4, filters=6, primary_strides=2, primary_types=3),
        1,
        class_caps=3.0,
    )


@pytest.fixture(scope="module")
def data():
    images = np.random.default_rng(0).random((40, 8, 8, 1), np.float32)
    return images, np.arange(40) % 4


@pytest.fixture(scope="module")
def report(model, data):
    return rem.evaluate(model, data, LEVELS, batch_size=16)


def keys_by_hand(model, data):
    images, _ = data
    rounded = rem.quantize_couplings(model, LEVELS)
    shown = outputs_of(rem.capsule_outputs(rounded), images)
    predicted = shown["lengths"].argmax(-1)
    codes = np.rint(shown["couplings"] * (LEVELS - 1)).astype(int)
    each = np.arange(len(images))
    towards = pooled_by_hand(codes[each, :, predicted], 3)
    return towards, predicted


def test_trees_of_types_equal_a_computation_by_hand(model, data, report):
    assert report.grid == (2, 2, 3)
    keys, classes = keys_by_hand(model, data)
    bits = [
        entropy_by_hand(keys[classes == j]) if np.any(classes == j) else 0.0
        for j in range(4)
    ]
    assert max(bits) > 1
    types = report.type_dictionary
    np.testing.assert_allclose(types.entropy_bits, bits, atol=1e-12)
    for j in range(4):
        own = np.unique(keys[classes == j], axis=0)
        assert {*map(bytes, types.keys(j))} == {
            *map(bytes, own.astype(np.uint8))
        }
    assert report.type_entropy_bits == pytest.approx(np.mean(bits))
    saved = report.to_dict()
    assert saved["type_entropy_bits"] == report.type_entropy_bits
    assert saved["type_ceiling_bits"] == report.ceiling_bits
    assert saved["type_median_keys"] == np.median(types.num_keys)
    assert "entropy of types" in str(report)


# ------------------------------------------------------------ without positions


def flat_capsnet():
    """A network whose children have one position."""
    return tiny_capsnet(primary_kernel_size=6, primary_types=4)


@pytest.mark.parametrize(
    ("make", "grid"),
    [
        (tiny_capsnet, (2, 2, 2)),
        (flat_capsnet, None),
        (SMALL_NETWORKS["multilayer_capsnet"], None),  # children in a row
    ],
    ids=["grid", "one_place", "row"],
)
def test_grid_is_that_of_the_last_routed_layer(make, grid):
    assert rem.Evaluator(make()).grid == grid


def test_network_without_positions_has_no_types(data):
    images, labels = data
    report = rem.evaluate(flat_capsnet(), (images, labels % 3))
    assert report.grid is report.type_dictionary is None
    saved = report.to_dict()
    about = {name for name in saved if name.startswith("type_")}
    assert about == {
        "type_entropy_bits", "type_ceiling_bits", "type_median_keys",
    }  # fmt: skip
    assert all(saved[name] is None for name in about)
    assert "types" not in str(report)


# ------------------------------------------------------------------ shifted


def scene(row, column):
    """An object of 2x2 pixels on a ground of zeros."""
    image = np.zeros((12, 12, 1), "float32")
    image[row : row + 2, column : column + 2, 0] = [[0.9, 0.4], [0.3, 0.7]]
    return image


def test_a_shift_by_a_cell_changes_the_key_of_places_and_not_that_of_types():
    images = keras.Input((12, 12, 1), name="images")
    children = layers.PrimaryCaps(3, 2, 4, 2, "valid")(images)
    classes = layers.ClassCaps(3, 4, 3, use_bias=False, share="type")
    model = keras.Model(images, layers.Length()(classes(children)))
    rng = np.random.default_rng(4)
    for weight in model.weights:
        scale = 0.0 if weight.name == "bias" else 3.0
        scale = 0.5 if len(weight.shape) == 4 else scale
        weight.assign(rng.normal(0.0, scale, weight.shape))
    # All windows that see the object are within the grid.
    places = ((4, 4), (6, 4), (4, 6), (6, 6))
    data = np.stack([scene(*place) for place in places])
    found = rem.trees(model, data, LEVELS)
    assert len(np.unique(found.codes, axis=0)) == 4
    assert len(np.unique(found.type_codes, axis=0)) == 1
    assert len({*found.predicted.tolist()}) == 1
    # Not because nothing is routed: empty children have the code of 1/3.
    assert found.type_codes.max() > 3 + 1
    report = rem.evaluate(model, (data, found.predicted), LEVELS)
    assert report.dictionary.entropy_bits.max() == 2.0  # four keys
    assert report.type_dictionary.entropy_bits.tolist() == [0.0] * 3
    # A shift by less than a cell may change both.
    types = rem.trees(model, np.stack([scene(4, 4), scene(5, 4)]), 101)
    assert np.any(types.type_codes[0] != types.type_codes[1])

"""Keys of types: pooled over places, the same when an object is shifted."""

import json
import math

import keras
import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, draw_weights, tiny_capsnet
from tfcaps import rem
from tfcaps.ops import quantize
from tfcaps.rem.parse.dictionary import (
    pool_types,
    type_dictionary,
)

LEVELS = 11


def pooled_by_hand(keys, grid):
    """Returns the maximum over places of each type, `[n, t]`."""
    rows, columns, types = grid
    keys = np.asarray(keys)
    pooled = np.zeros((len(keys), types), keys.dtype)
    for n, key in enumerate(keys):
        for child, value in enumerate(key):
            t = child % types  # the order row, column, type
            first = child < types
            pooled[n, t] = value if first else max(pooled[n, t], value)
    return pooled


def entropy_by_hand(keys):
    """Returns the entropy of rows in bits."""
    rows = [tuple(key) for key in np.asarray(keys).tolist()]
    shares = [rows.count(row) / len(rows) for row in {*rows}]
    return -sum(p * math.log2(p) for p in shares)


# --------------------------------------------------------------------- pooling


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_pooling_is_the_maximum_over_places(dtype, rng):
    grid = (2, 3, 4)
    couplings = (100 * rng.random((5, 24))).astype(dtype)
    pooled = keras.ops.convert_to_numpy(pool_types(couplings, grid))
    assert pooled.dtype == dtype
    np.testing.assert_array_equal(pooled, pooled_by_hand(couplings, grid))


@pytest.mark.parametrize("batch", [(), (2,), (2, 3), (2, 1, 3)], ids=str)
def test_pooling_keeps_the_axes_before_the_children(batch, rng):
    couplings = rng.random((*batch, 12)).astype("float32")
    pooled = keras.ops.convert_to_numpy(pool_types(couplings, (2, 3, 2)))
    places = couplings.reshape(*batch, 6, 2)
    np.testing.assert_array_equal(pooled, places.max(axis=-2))


def test_pooling_is_a_part_of_compiled_networks(rng):
    couplings = keras.Input((12,))
    model = keras.Model(couplings, pool_types(couplings, (3, 2, 2)))
    assert model.output_shape == (None, 2)
    values = rng.random((7, 12)).astype("float32")
    np.testing.assert_array_equal(
        model.predict(values, verbose=0), pooled_by_hand(values, (3, 2, 2))
    )


@pytest.mark.parametrize("mode", ["midtread", "midrise"])
@pytest.mark.parametrize("levels", [2, 5, 11])
def test_codes_are_pooled_as_couplings_are(levels, mode, rng):
    edges = np.arange(2 * levels + 1) / (2 * levels)
    couplings = rng.choice(edges, (50, 24)).astype("float32")
    pooled = quantize(pool_types(couplings, (4, 2, 3)), levels, mode=mode)
    codes = quantize(couplings, levels, mode=mode)
    np.testing.assert_array_equal(pool_types(codes, (4, 2, 3)), pooled)


def test_children_that_do_not_fit_the_grid_are_an_error():
    with pytest.raises(
        ValueError,
        match=r"each child of the grid, 12. Received: shape=\(2, 8\), "
        r"grid=\(2, 2, 3\). Take the grid from `Report.grid`.",
    ):
        pool_types(np.zeros((2, 8)), (2, 2, 3))


# ---------------------------------------------------------------- dictionaries


def test_dictionary_of_types_counts_every_sample(rng):
    keys = rng.integers(0, 3, (200, 8), np.uint8)
    classes = rng.integers(0, 3, 200)
    trees, expected = rem.CouplingDictionary(4), rem.CouplingDictionary(4)
    trees.update(keys, classes)
    expected.update(pooled_by_hand(keys, (2, 2, 2)), classes)
    types = type_dictionary(trees, (2, 2, 2))
    assert types.summary() == expected.summary()
    for j in range(4):
        np.testing.assert_array_equal(types.keys(j), expected.keys(j))
        assert types.counts(j) == expected.counts(j)


def test_keys_that_differ_in_place_alone_have_no_entropy():
    # One type at one of eight places, and a second one everywhere.
    keys = np.full((8, 8, 2), 4)
    keys[np.arange(8), np.arange(8), 0] = 9
    trees = rem.CouplingDictionary(1)
    trees.update(keys.reshape(8, 16), np.zeros(8, int))
    types = type_dictionary(trees, (2, 4, 2))
    assert trees.entropy_bits.tolist() == [3.0]
    assert types.entropy_bits.tolist() == [0.0]
    np.testing.assert_array_equal(types.keys(0), [[9, 4]])


def test_dictionary_of_nothing_has_no_types():
    types = type_dictionary(rem.CouplingDictionary(3), (2, 2, 2))
    assert (types.num_classes, types.num_samples.sum()) == (3, 0)


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
    """Returns pooled codes, and the predicted classes."""
    images, _ = data
    rounded = rem.quantize_couplings(model, LEVELS)
    shown = rem.capsule_outputs(rounded).predict(images, verbose=0)
    predicted = shown["lengths"].argmax(-1)
    codes = np.rint(shown["couplings"] * (LEVELS - 1)).astype(int)
    each = np.arange(len(images))
    towards = pooled_by_hand(codes[each, :, predicted], (2, 2, 3))
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
    assert report.type_ceiling_bits == report.ceiling_bits
    assert report.type_median_keys == np.median(types.num_keys)


def test_types_have_fewer_keys_than_places(report):
    fewer = report.type_dictionary.num_keys < report.dictionary.num_keys
    assert np.any(fewer)
    assert report.type_entropy_bits < report.entropy_bits


def test_types_are_in_the_table_and_in_json(report):
    bits, ceiling = report.type_entropy_bits, report.ceiling_bits
    lines = str(report).splitlines()
    text = f"{bits:.2f} of at most {ceiling:.2f} bits"
    assert f"entropy of types         {text}" in lines
    keys = f"{report.type_median_keys:g}"
    assert f"keys of types, median    {keys}" in lines
    saved = json.loads(json.dumps(report.to_dict()))
    assert saved["grid"] == [2, 2, 3]
    assert saved["type_entropy_bits"] == bits
    assert saved["type_ceiling_bits"] == ceiling
    assert saved["type_median_keys"] == report.type_median_keys


@pytest.mark.slow
def test_search_for_levels_has_the_entropy_of_types(model, data):
    search = rem.find_levels(model, data, (3, LEVELS), batch_size=16)
    for row in search.rows:
        report = rem.evaluate(model, data, row["levels"], batch_size=16)
        assert row["type_entropy_bits"] == report.type_entropy_bits
    bits = search.rows[-1]["type_entropy_bits"]
    assert bits > 0
    head, *rows = str(search).splitlines()
    assert head.endswith("necessity %  entropy of types")
    assert rows[1].endswith(f"{bits:.2f}") and len(rows[1]) == len(head)


def test_key_of_each_image_is_that_of_the_dictionary(model, data, report):
    found = rem.trees(model, data[0], LEVELS)
    keys, predicted = found.type_codes, found.predicted
    expected, classes = keys_by_hand(model, data)
    np.testing.assert_array_equal(keys, expected)
    np.testing.assert_array_equal(predicted, classes)
    assert keys.dtype == np.uint8
    trees = rem.CouplingDictionary(4)
    trees.update(keys, predicted)
    assert trees.summary() == report.type_dictionary.summary()


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
    names = (
        "grid", "type_dictionary", "type_entropy_bits",
        "type_ceiling_bits", "type_median_keys",
    )  # fmt: skip
    assert [getattr(report, name) for name in names] == [None] * len(names)
    saved = report.to_dict()
    about = {name for name in saved if name.startswith("type_")}
    assert about == {
        "type_entropy_bits", "type_ceiling_bits", "type_median_keys",
    }  # fmt: skip
    assert all(saved[name] is None for name in about)
    assert "types" not in str(report)

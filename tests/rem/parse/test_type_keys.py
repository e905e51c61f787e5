"""Keys of types: pooled over places, the same when an object is shifted."""

import dataclasses

import keras
import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, draw_weights, tiny_capsnet
from tfcaps import layers, rem

LEVELS = 11
IMAGES = np.random.default_rng(0).random((40, 8, 8, 1), np.float32)
LABELS = np.arange(40) % 4


def flat_capsnet():
    """A network whose children have one position."""
    return tiny_capsnet(primary_kernel_size=6, primary_types=4)


def test_a_report_has_the_trees_of_types():
    model = draw_weights(
        tiny_capsnet(4, filters=6, primary_strides=2, primary_types=3),
        1,
        class_caps=3.0,
    )
    report = rem.evaluate(model, (IMAGES, LABELS), LEVELS, batch_size=16)
    assert report.grid == (2, 2, 3)
    found = rem.trees(model, IMAGES, LEVELS)
    # The order of children is row, column, type.
    keys = np.stack([found.codes[:, t::3].max(axis=1) for t in range(3)], 1)
    np.testing.assert_array_equal(found.type_codes, keys)
    expected = rem.CouplingDictionary(4)
    expected.update(keys, found.predicted)
    types = report.type_dictionary
    assert types.summary() == expected.summary()
    assert report.type_entropy_bits == np.mean(expected.entropy_bits) > 0.3
    assert report.to_dict()["type_entropy_bits"] == report.type_entropy_bits
    assert "entropy, trees by type" in str(report)
    slots = rem.CouplingDictionary(4)
    slots.update(found.slots.astype("uint8"), found.predicted)
    assert report.slot_entropy_bits == np.mean(slots.entropy_bits)


@pytest.mark.parametrize(
    "make", [flat_capsnet, SMALL_NETWORKS["multilayer_capsnet"]]
)
def test_network_without_positions_has_no_types(make):
    report = rem.evaluate(make(), (IMAGES, LABELS % 3))
    assert report.grid is report.type_dictionary is None
    assert report.to_dict()["type_entropy_bits"] is None
    assert "types" not in str(report)


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
    # Nor does that of offsets, unless a part stands elsewhere in the object.
    assert len({*found.offset_keys}) == 1
    assert report.offset_entropy_bits == 0.0
    one = found[:1]
    cells = np.zeros((4, 1, *one.grid), "uint8")
    for k, (row, column) in enumerate(((1, 1), (2, 2), (1, 2), (1, 1))):
        cells[k, 0, 0 + k % 2, 0 + k % 2, 0] = 10
        cells[k, 0, row, column, 1] = 9
    cells[3] = 0  # no leaf
    keys = [
        dataclasses.replace(one, codes=leaves, in_tree=leaves > 0).offset_keys[
            0
        ]
        for leaves in cells.reshape(4, 1, -1)
    ]
    assert keys[0] == keys[1] and len({*keys}) == 3 and keys[3] == b""

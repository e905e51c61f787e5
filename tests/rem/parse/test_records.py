"""Trees as plain data: what is said of each image, and where in its file."""

import json

import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, draw_weights, images_of, tiny_capsnet
from tfcaps import rem

NAMES = ["ant", "bee", "cat"]


@pytest.fixture(scope="module")
def known():
    """Trees of images of 8x8 pixels, and the fields of their children."""
    model = draw_weights(tiny_capsnet(), 0, class_caps=9.0)
    return rem.trees(model, images_of(model, 5)), rem.receptive_fields(model)


def records_of(known, **options):
    records = rem.tree_records(*known, **options)
    assert json.loads(json.dumps(records, allow_nan=False)) == records
    return records


def test_each_image_has_its_answer_and_its_leaves(known):
    trees, fields = known
    shifts = np.arange(12.0).reshape(3, 2, 2)
    shifts[:, 0] = np.nan
    records = records_of(
        known, class_names=NAMES, type_names=["ear", "paw"], blueprints=shifts
    )
    assert 0 < trees.leaves.sum()
    for k, record in enumerate(records):
        second, first = np.argsort(trees.lengths[k])[-2:]
        assert record["class"] == NAMES[first]
        assert record["runner_up"] == NAMES[second]
        margin = trees.lengths[k, first] - trees.lengths[k, second]
        assert record["margin"] == pytest.approx(margin, abs=1e-4)
        children = [leaf["child"] for leaf in record["leaves"]]
        assert sorted(children) == np.flatnonzero(trees.in_tree[k]).tolist()
        strength = (trees.towards * trees.activations)[k, children]
        assert np.all(np.diff(strength) <= 0)
        for leaf, child in zip(record["leaves"], children, strict=True):
            top, left, bottom, right = fields.boxes[child].tolist()
            assert leaf["box"] == [left, top, right, bottom]
            assert leaf["place"] == trees.places[k, child].tolist()[::-1]
            assert leaf["name"] == ["ear", "paw"][leaf["type"]]
            assert leaf["type"] == child % 2
        [part] = record["blueprint"]
        assert part["name"] == "paw"
        assert part["shift"] == shifts[first, 1].tolist()[::-1]


@pytest.mark.parametrize("size", [(24, 80), (5, 3), (100, 50)])
def test_boxes_and_places_are_in_pixels_of_the_file(known, size):
    trees, fields = known
    # Every pixel of the file under a pixel that the child sees, and no other.
    rows, columns = (np.floor((np.arange(n) + 0.5) * 8 / n) for n in size)
    for record in records_of(known, sizes=size):
        assert (record["height"], record["width"]) == size
        for leaf in record["leaves"]:
            x0, y0, x1, y1 = leaf["box"]
            first, start, last, stop = fields.boxes[leaf["child"]]
            for along, low, high, begin, end in (
                (rows, y0, y1, first, last),
                (columns, x0, x1, start, stop),
            ):
                seen = np.flatnonzero((along >= begin) & (along < end))
                # Pixels of the file that are seen in part are in it too.
                assert low <= seen.min() <= low + 1
                assert high - 1 <= seen.max() + 1 <= high
            down, across = fields.child_centres[leaf["child"]] + 0.5
            expected = [across * size[1] / 8 - 0.5, down * size[0] / 8 - 0.5]
            assert leaf["place"] == pytest.approx(expected, abs=0.01)


def test_what_is_not_known_is_none():
    model = SMALL_NETWORKS["multilayer_capsnet"]()
    images = images_of(model, 2)
    trees, fields = rem.trees(model, images), rem.receptive_fields(model)
    trees.in_tree[:] = True
    for record in records_of((trees, fields)):
        high, wide = images.shape[1:3]
        assert {leaf["place"] is None for leaf in record["leaves"]} == {True}
        assert record["leaves"][0]["box"] == [0, 0, wide, high]
        assert record["boxes"] == "receptive field"
        assert record["blueprint"] is None


def test_children_that_see_all_have_the_cells_of_their_places(known):
    trees, fields = known
    fields.boxes.flags.writeable = True
    before = fields.boxes.copy()
    fields.boxes[:] = 0, 0, 8, 8
    record = records_of(known)[int(trees.leaves.argmax())]
    fields.boxes[:] = before
    assert record["boxes"] == "cell"
    for leaf in record["leaves"]:
        row, column = divmod(leaf["child"] // 2, 2)
        corner = [4 * column, 4 * row]
        assert leaf["box"] == [*corner, corner[0] + 4, corner[1] + 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": [[8, 8]] * 3}, r"`sizes` must have the shape \(5, 2\)"),
        ({"class_names": ["a"]}, "`class_names` must have 3 names"),
        ({"type_names": ["a"]}, "`type_names` must have 2 names"),
    ],
)
def test_mistakes_are_named(known, options, message):
    with pytest.raises(ValueError, match=message):
        rem.tree_records(*known, **options)

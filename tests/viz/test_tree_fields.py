"""What the children of a tree see, as data and as a figure."""

import json

import keras
import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from tests.networks import draw_weights, tiny_capsnet
from tests.tolerance import SUMS
from tfcaps import rem, viz
from tfcaps.rem import ReceptiveFields, Trees
from tfcaps.viz.drawing import colour

NAMES = ["ant", "bee", "cat"]


def sharp_capsnet(**settings):
    """Returns a network whose couplings differ from the uniform ones."""
    model = tiny_capsnet(primary_types=3, **settings)
    draw_weights(model, 0, class_caps=3.0)
    return model


def images_of(model, count=4):
    rng = np.random.default_rng(1)
    return rng.random((count, *model.input_shape[1:]), dtype=np.float32)


def fields_of(boxes, image_shape=(6, 6), grid=(2, 2, 2), size=(3, 3)):
    """Returns fields of which the middles are those of the boxes."""
    boxes = np.asarray(boxes)
    middles = (boxes[:, :2] + boxes[:, 2:] - 1) / 2
    return ReceptiveFields(
        image_shape, grid, np.zeros((*grid[:2], 2)), size, boxes, middles, ()
    )


# Two types at the corners of a 6x6 image; the last place lies beyond it.
BOXES = np.repeat(
    [[0, 0, 3, 3], [0, 3, 3, 6], [3, 0, 6, 3], [4, 4, 6, 6]], 2, 0
)
FIELDS = fields_of(BOXES)
# The middle of what the child at the border would see of a larger image.
FIELDS.child_centres[6:] = 5.0


def tree_of(children, couplings, fields=FIELDS):
    """Returns the arguments of a figure of one tree, of the second class."""
    count, j = len(fields.boxes), 1
    towards, activations = np.zeros((2, 1, count), np.float32)
    towards[0, children] = couplings
    activations[0, children] = np.linspace(0.9, 0.5, len(children))
    trees = Trees(
        predicted=np.array([j]),
        lengths=np.array([[0.1, 0.8, 0.2]]),
        couplings=np.zeros((1, count, 0)),
        towards=towards,
        codes=np.zeros((1, count), np.uint8),
        in_tree=towards > 1 / 3,
        activations=activations,
        types=np.arange(count) % fields.grid[2],
        places=np.zeros((1, count, 2)),
    )
    return trees, fields


def outlines(panel):
    return [p for p in panel.patches if isinstance(p, Rectangle)]


def texts(panel):
    return [text.get_text() for text in panel.texts]


@pytest.mark.parametrize("levels", [None, 11], ids=["as_they_are", "rounded"])
def test_trees_have_the_children_above_the_uniform_coupling(levels):
    model = sharp_capsnet()
    images = images_of(model)
    shown = model if levels is None else rem.quantize_couplings(model, levels)
    shown = rem.explanation(shown)(images)
    poses = keras.Model(model.input, model.get_layer("primary_caps").output)
    lengths = np.linalg.norm(poses(images), axis=-1).reshape(4, -1)
    fields = rem.receptive_fields(model)
    trees = rem.trees(model, images, levels, batch_size=3)
    data = viz.tree_fields(images, trees, fields).data
    sizes = set()
    for k, tree in enumerate(data["images"]):
        couplings = np.asarray(shown["couplings"][k])
        inside = np.flatnonzero(couplings > 1 / 3 + 1e-4)
        strength = couplings * lengths[k]
        children = [part["child"] for part in tree["children"]]
        assert children == sorted(inside, key=lambda child: -strength[child])
        for name, expected in (
            ("coupling", couplings[children]),
            ("activation", lengths[k][children]),
        ):
            found = [part[name] for part in tree["children"]]
            np.testing.assert_allclose(found, expected, atol=SUMS)
        assert tree["predicted"] == shown["classes"][k]
        assert tree["length"] == pytest.approx(
            float(np.max(shown["lengths"][k])), abs=SUMS
        )
        boxes = [part["box"] for part in tree["children"]]
        assert boxes == fields.boxes[children].tolist()
        sizes.add(len(inside))
    assert 0 < min(sizes) and max(sizes) < 12


def test_outlines_are_where_the_children_look():
    tree = tree_of([2, 7, 0, 3], [0.9, 0.8, 0.6, 0.4])
    image = np.arange(36.0).reshape(1, 6, 6, 1) / 36
    drawing, data = viz.tree_fields(
        image, *tree, labels=[2], class_names=NAMES, most=3
    )
    left, right = drawing.axes
    assert left.get_title() == "cat"
    # The strongest is drawn last; the fourth is not among the parts.
    drawn = outlines(left)
    places = [
        (p.get_x(), p.get_y(), p.get_width(), p.get_height()) for p in drawn
    ]
    assert places == [
        (2.5, -0.5, 3, 3), (-0.5, -0.5, 3, 3), (3.5, 3.5, 2, 2),
        (2.5, -0.5, 3, 3),
    ]  # fmt: skip
    widths = [patch.get_linewidth() for patch in drawn]
    assert widths == sorted(widths) and widths[0] < widths[1]
    assert drawn[0].get_edgecolor()[:3] == (1, 1, 1)
    assert drawn[2].get_edgecolor()[:3] == to_rgba(colour(1))[:3]
    assert texts(left) == ["1", "2", "3"]
    assert data["images"][0]["children"][1] == {
        "child": 7, "position": [1, 1, 1], "coupling": 0.8,
        "activation": 0.766667, "box": [4, 4, 6, 6],
    }  # fmt: skip
    assert len(data["images"][0]["children"]) == 4
    assert data == json.loads(json.dumps(data))


def test_parts_are_cut_out_and_tied_to_the_class():
    tree = tree_of([2, 7, 0, 3], [0.9, 0.8, 0.6, 0.4])
    image = np.arange(36.0).reshape(1, 6, 6, 1) / 36
    drawing = viz.tree_fields(image, *tree, class_names=NAMES, most=3).figure
    left, right = drawing.axes
    whole = left.images[0].get_array()
    first, second, third = right.images
    np.testing.assert_array_equal(first.get_array(), whole[:3, 3:])
    np.testing.assert_array_equal(third.get_array(), whole[:3, :3])
    # At the border only the pixels inside, at the same scale.
    np.testing.assert_array_equal(second.get_array(), whole[4:, 4:])
    x0, x1, y0, y1 = first.get_extent()
    np.testing.assert_allclose([x0, x1, y0, y1], [0, 1, 0, 1])
    x0, x1, y0, y1 = second.get_extent()
    start = x0
    np.testing.assert_allclose([x1 - x0, y1 - y0, y1], [2 / 3, 2 / 3, 1])
    (lines,) = right.collections
    ends = np.array(lines.get_segments())
    np.testing.assert_allclose(ends[1, 0], [start + 0.5, 1])
    assert len({tuple(end) for end in ends[:, 1].tolist()}) == 1
    widths = lines.get_linewidths()
    assert widths[0] > widths[1] > widths[2]
    opacities = lines.get_colors()[:, 3]
    assert opacities[0] > opacities[1] > opacities[2]
    assert texts(right) == [
        "bee", "1", "type 0\n0.90", "2", "type 1\n0.80", "3", "type 0\n0.60",
        "and 1\nmore",
        "4 of 8 children are in the tree; each sees 3x3 of 6x6 pixels",
    ]  # fmt: skip


def test_a_title_stands_over_its_tree():
    tree, fields = tree_of([2], [0.9])
    drawing, data = viz.tree_fields(
        np.zeros((2, 6, 6, 1)),
        Trees.joined([tree, tree]),
        fields,
        titles=["one", "other"],
    )
    assert [drawing.axes[k].get_title("left") for k in (1, 3)] == [
        "one",
        "other",
    ]
    assert [part["title"] for part in data["images"]] == ["one", "other"]


def test_a_part_that_is_cut_by_the_first_row_lies_at_the_lower_right():
    fields = fields_of([[0, 0, 2, 1], [2, 3, 5, 6]], grid=(1, 2, 1))
    fields.child_centres[0] = [0, -1]
    image = np.arange(36.0).reshape(1, 6, 6, 1) / 36
    tree = tree_of([0], [0.9], fields)
    right = viz.tree_fields(image, *tree).figure.axes[1]
    (part,) = right.images
    assert part.get_array().shape == (2, 1)
    np.testing.assert_allclose(
        part.get_extent(), [2 / 3, 1, 0, 2 / 3], atol=1e-9
    )


def test_equal_outlines_have_one_sign():
    tree = tree_of([2, 0, 3], [0.9, 0.8, 0.6])
    drawing = viz.tree_fields(np.zeros((1, 6, 6, 3)), *tree).figure
    assert texts(drawing.axes[0]) == ["1, 3", "2"]
    assert "and" not in " ".join(texts(drawing.axes[1])[:-1])


def test_two_views_have_outlines_and_parts_in_both():
    images = np.random.default_rng(0).random((1, 6, 6, 2))
    drawing = viz.tree_fields(images, *tree_of([2], [0.9])).figure
    left, right = drawing.axes
    assert [p.get_x() for p in outlines(left)] == [2.5, 8.5]
    whole = left.images[0].get_array()
    one, other = right.images
    np.testing.assert_array_equal(one.get_array(), whole[:3, 3:6])
    np.testing.assert_array_equal(other.get_array(), whole[:3, 9:])
    np.testing.assert_allclose(one.get_extent(), [0, 0.5, 0.5, 1])
    np.testing.assert_allclose(other.get_extent(), [0.5, 1, 0.5, 1])


def test_children_that_see_all_the_same_are_no_parts():
    fields = fields_of([[0, 0, 5, 5]] * 3, grid=(1, 1, 3), size=(5, 5))
    tree = tree_of([2, 0], [0.9, 0.7], fields)
    drawing, data = viz.tree_fields(np.zeros((1, 6, 6, 1)), *tree)
    left, right = drawing.axes
    assert not outlines(left) and not right.images
    assert not data["images"][0]["is_local"]
    assert texts(right) == [
        "1", "child 2\n0.90", "child 0\n0.70",
        "2 of 3 children are in the tree; every child sees the same 5x5 of 6x6 "
        "pixels, so none stands for a part",
    ]  # fmt: skip


def test_children_some_of_which_see_the_whole_image_are_no_parts():
    fields = fields_of(
        [[0, 0, 6, 6], [0, 0, 6, 5]], grid=(1, 2, 1), size=(6, 6)
    )
    tree = tree_of([1], [0.9], fields)
    right = viz.tree_fields(np.zeros((1, 6, 6, 1)), *tree).figure.axes[1]
    assert not right.images
    assert texts(right)[-1].endswith(
        "there are children that see the whole image"
    )


def test_a_tree_without_children_says_so():
    tree = tree_of([], [])
    drawing, data = viz.tree_fields(np.zeros((1, 6, 6, 1)), *tree)
    assert texts(drawing.axes[1])[1].startswith("none of the 8 children is")
    assert data["images"][0]["children"] == []


def test_images_without_trees_are_an_error():
    tree = tree_of([2], [0.9])
    with pytest.raises(ValueError, match="2 images and 1 trees"):
        viz.tree_fields(np.zeros((2, 6, 6, 1)), *tree)
    with pytest.raises(ValueError, match="0 images and 0 trees"):
        viz.tree_fields(np.zeros((0, 6, 6, 1)), tree[0][:0], FIELDS)
    with pytest.raises(ValueError, match="`tfcaps.rem.trees` returns. Rec"):
        viz.tree_fields(np.zeros((1, 6, 6, 1)), [tree], FIELDS)
    with pytest.raises(ValueError, match="at least 1. Received: most=0"):
        viz.tree_fields(np.zeros((1, 6, 6, 1)), *tree, most=0)
    with pytest.raises(ValueError, match="1 images and 2 titles"):
        viz.tree_fields(np.zeros((1, 6, 6, 1)), *tree, titles=["a", "b"])


def test_children_that_see_all_but_have_places_are_shown_by_their_cells():
    fields = fields_of([[0, 0, 6, 6]] * 8, grid=(2, 2, 2), size=(6, 6))
    cells = fields.cells
    assert cells.is_local and cells.size == (3, 3)
    assert cells.boxes[::2].tolist() == [
        [0, 0, 3, 3], [0, 3, 3, 6], [3, 0, 6, 3], [3, 3, 6, 6]
    ]  # fmt: skip
    assert cells.child_centres[2].tolist() == [1.0, 4.0]
    image = np.arange(36.0).reshape(1, 6, 6, 1) / 36
    drawing, data = viz.tree_fields(image, *tree_of([3], [0.9], fields))
    left, right = drawing.axes
    (outline,) = outlines(left)
    assert (outline.get_x(), outline.get_y()) == (2.5, -0.5)
    whole = left.images[0].get_array()
    np.testing.assert_array_equal(right.images[0].get_array(), whole[:3, 3:])
    assert texts(right)[-1].endswith(
        "each sees up to 6x6 of 6x6 pixels, and is shown by its cell in a grid "
        "of 2x2"
    )
    assert data["images"][0]["children"][0]["box"] == [0, 0, 6, 6]

"""What the children of a tree see, as data and as a figure."""

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from tests.refusals import assert_refused
from tests.trees import made
from tfcaps import viz
from tfcaps.rem import Explanation, ReceptiveFields
from tfcaps.viz.drawing import colour

NAMES = ["ant", "bee", "cat"]
IMAGE = np.arange(36.0).reshape(1, 6, 6, 1) / 36
SHOWN = np.round(255 * IMAGE[0, ..., 0])


def fields_of(boxes, image_shape=(6, 6), grid=(2, 2, 2)):
    """Returns fields of which the middles are those of the boxes."""
    boxes = np.asarray(boxes)
    middles = (boxes[:, :2] + boxes[:, 2:] - 1) / 2
    centres = middles.reshape(*grid, 2)[:, :, 0]
    return ReceptiveFields(image_shape, grid, centres, boxes)


# Two types at the corners of a 6x6 image; the last place lies beyond it.
FIELDS = fields_of(
    np.repeat([[0, 0, 3, 3], [0, 3, 3, 6], [3, 0, 6, 3], [4, 4, 6, 6]], 2, 0)
)
# The middle of what the child at the border would see of a larger image.
FIELDS.centres[1, 1] = 5.0
WHOLE = fields_of([[0, 0, 6, 6]] * 8)


def explained(children, couplings, fields=FIELDS, **known):
    """Returns the explanation of an image of the second class."""
    count = len(fields.boxes)
    towards, activations = np.zeros((2, 1, count), np.float32)
    towards[0, children] = couplings
    activations[0, children] = np.linspace(0.9, 0.5, len(children))
    trees = made(
        towards,
        np.arange(count) % fields.grid[2],
        0.0,
        predicted=np.array([1]),
        lengths=np.array([[0.1, 0.8, 0.2]]),
        activations=activations,
    )
    record = {"height": 6, "width": 6}
    return Explanation(IMAGE, trees, None, [record], fields, **known)


def drawn(*tree, most=8, **known):
    return viz.tree_fields(explained(*tree, **known), most=most).axes


def outlines(panel):
    return [p for p in panel.patches if isinstance(p, Rectangle)]


def texts(panel):
    return [text.get_text() for text in panel.texts]


def test_outlines_are_where_the_children_look():
    left, right = drawn(
        [2, 7, 0, 3],
        [0.9, 0.8, 0.6, 0.4],
        labels=[2],
        class_names=NAMES,
        type_names=["ear", "paw"],
        most=3,
    )
    assert left.get_title() == "cat"
    # The strongest is drawn last; the fourth is not among the parts.
    patches = outlines(left)
    places = [(*p.get_xy(), p.get_width(), p.get_height()) for p in patches]
    assert places == [
        (2.5, -0.5, 3, 3), (-0.5, -0.5, 3, 3), (3.5, 3.5, 2, 2),
        (2.5, -0.5, 3, 3),
    ]  # fmt: skip
    widths = [patch.get_linewidth() for patch in patches]
    assert widths == sorted(widths) and widths[0] < widths[1]
    assert patches[0].get_edgecolor()[:3] == (1, 1, 1)
    assert patches[2].get_edgecolor()[:3] == to_rgba(colour(1))[:3]
    assert texts(left) == ["1", "2", "3"]
    assert "paw\n0.80" in texts(right) and "and 1\nmore" in texts(right)


def test_children_that_see_all_but_have_places_are_shown_by_their_cells():
    cells = WHOLE.cells
    assert cells.is_local and cells.size == (3, 3)
    corners = [[0, 0, 3, 3], [0, 3, 3, 6], [3, 0, 6, 3], [3, 3, 6, 6]]
    assert cells.boxes[::2].tolist() == corners
    assert cells.child_centres[2].tolist() == [1.0, 4.0]
    left, right = drawn([3], [0.9], WHOLE)
    (outline,) = outlines(left)
    assert outline.get_xy() == (2.5, -0.5)
    np.testing.assert_array_equal(right.images[0].get_array(), SHOWN[:3, 3:])
    told = " ".join(texts(right)[-1].split())
    assert told.endswith(
        "each sees up to 6x6 of 6x6 pixels, and is shown by its cell in a grid "
        "of 2x2"
    )


def test_a_tree_without_children_says_so():
    _, right = drawn([], [])
    assert texts(right)[1].startswith("none of the 8 children is")


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"most": 0}, "`most`"), ({"titles": ["a", "b"]}, "1 images, 2 titles")],
)
def test_mistakes_are_explained(settings, said):
    why = explained([2], [0.9])
    assert_refused(lambda: viz.tree_fields(why, **settings), said)

"""One image with its named parts: what is drawn, and where."""

import numpy as np
import pytest
from matplotlib.text import Text

from tests.refusals import assert_refused
from tests.trees import made
from tfcaps import viz
from tfcaps.rem import Explanation

NAMES = ["wheel", "door", "roof"]
CLASSES = ["red car", "blue car"]
LENGTHS = [[0.1, 0.9], [0.2, 0.1], [0.0, 0.8]]
# Row and column of each part from the place of the class.
BLUEPRINT = np.array([[3.0, -6.0], [0.0, 4.0], [np.nan, np.nan]])
IMAGE = np.random.default_rng(0).random((30, 30, 1))
KNOWN = np.random.default_rng(1).random((3, 3, 5, 5, 1))
KNOWN[2] = np.nan


def tree_of(places, types, in_tree, activations=None):
    """Returns the tree of one image."""
    active = np.ones(len(types)) if activations is None else activations
    return made(
        [in_tree],
        types,
        [places],
        predicted=np.array([1]),
        lengths=np.array([LENGTHS[0]], "float32"),
        activations=np.array([active], "float32"),
    )


# A wheel and a door at (10, 12) of the class; a roof far from it.
TREE = tree_of(
    [[13, 6], [10, 16], [25, 25], [25.5, 25], [2, 2]],
    [0, 1, 2, 0, 2],
    [1, 1, 0, 0, 0],
    [1, 0.9, 0.8, 0.3, 0.01],
)


def explanation(tree=TREE, lengths=LENGTHS, image=IMAGE, aspect=1, **known):
    """Returns the explanation of one image."""
    rows, columns = image.shape[:2]
    record = {"height": rows * aspect, "width": columns}
    lengths = np.array([lengths])
    return Explanation(image[None], tree, lengths, [record], None, **known)


def draw(*args, name="this image", **known):
    return viz.named_tree(explanation(*args, **known), name=name)


NAMED = {
    "class_names": CLASSES,
    "type_names": NAMES,
    "blueprints": np.stack([BLUEPRINT] * 2),
    "parts": KNOWN,
    "labels": [0],
}


@pytest.fixture(scope="module")
def drawn():
    return draw(**NAMED)


def texts(drawing):
    """Returns everything that is written, in the figure and its panels."""
    found = [text.get_text() for text in drawing.subfigs[0].texts]
    for panel in drawing.axes:
        found += [text.get_text() for text in panel.texts]
        found.append(panel.get_xlabel())
    return found


def test_leaves_are_named_and_others_are_said_to_be_no_part(drawn):
    # Of two at one place one is shown, and none that is hardly active.
    written = [text.get_text() for text in drawn.axes[0].texts]
    assert written == ["wheel", "door", "roof,\nnot in the tree"]
    head, told = (" ".join(text.split()) for text in texts(drawn)[:2])
    assert head == "Answer to this image: blue car (WRONG: red car)"
    assert told.startswith(
        "In its tree: wheel and door. Active, not in it: roof."
    )
    leaves, *_ = drawn.axes[0].collections
    assert leaves.get_offsets().tolist() == [[16, 10], [6, 13]]
    # Lines lead to the place of the class.
    ends = [line.get_xydata()[-1] for line in drawn.axes[0].lines]
    np.testing.assert_allclose(ends, [[12, 10]] * 4)


def test_blueprint_and_dictionary_have_what_is_known(drawn):
    panel = drawn.axes[1]
    assert [text.get_text() for text in panel.texts] == ["wheel", "door"]
    ends = [line.get_xydata()[-1].tolist() for line in panel.lines]
    assert ends == [[-6.0, 3.0], [4.0, 0.0]]
    # A row is as high as a column is wide, and rows go down.
    box = panel.get_window_extent()
    (left, right), (bottom, top) = panel.get_xlim(), panel.get_ylim()
    assert bottom > top
    square = box.height / (bottom - top)
    assert box.width / (right - left) == pytest.approx(square)
    labels = [panel.get_xlabel() for panel in drawn.axes[2:]]
    assert labels[:2] == ["wheel", "door"] and len(labels) == 2 + 6
    # Of each type its pictures, side by side, and not their mean.
    [shown] = drawn.axes[2].images
    low, high = np.nanmin(KNOWN), np.nanmax(KNOWN)
    first = np.round(255 * (KNOWN[0, 0, ..., 0] - low) / (high - low))
    np.testing.assert_allclose(shown.get_array()[1:6, 1:6], first, atol=1)
    assert shown.get_array().shape == (14, 14)


def test_types_of_the_tree_come_first():
    many = np.random.default_rng(2).random((40, 4, 3, 3, 3))
    tree = tree_of([[4, 4], [9, 9], [2, 2]], [39, 7, 20], [1, 1, 0])
    drawing = draw(tree, parts=many)
    labels = [panel.get_xlabel() for panel in drawing.axes[1:9]]
    assert labels[:3] == ["type 7", "type 39", "type 0"]
    heads = [text.get_text() for text in drawing.findobj(Text)]
    assert "2  Some of what its parts lie on (8 of 40)" in heads


def test_a_length_is_said_to_be_what_it_is(drawn):
    told = " ".join(texts(drawn)[1].split())
    assert "length is 0.90, a margin of 0.80 to the next class, red car" in told
    assert "the share of its parts that are where it looks for them," in told
    drawing = draw(name="a\n$_$.jpg", aspect=2)
    head, told = texts(drawing)[:2]
    assert head == "Answer to a $_$.jpg: 1"
    told = " ".join(told.split())
    assert "A length is from 0 to 1, and no probability." in told
    box = drawing.axes[0].get_window_extent()
    assert box.height == pytest.approx(2 * box.width, rel=0.01)


def test_it_is_said_whether_the_class_needs_its_tree(drawn):
    written = texts(drawn)
    assert written.count("answer changes") == 1
    assert written.count("answer stays") == 1
    assert written.count("blue car") == written.count("red car") == 3
    for without, told in {
        (0.1, 0.4): "stays, shorter",  # less than half as long
        (0.0, 0.0): "no answer",
    }.items():
        given = [LENGTHS[0], without, LENGTHS[2]]
        drawing = draw(tree_of([[5, 5]], [0], [1]), given)
        assert told in texts(drawing)


def test_what_is_not_known_is_not_drawn(rng):
    drawing = draw(image=rng.random((30, 20, 3)))
    written = texts(drawing)
    assert {"type 0", "type 1", "type 2,\nnot in the tree"} <= {*written}
    assert drawing.axes[0].texts[0].get_text() == "1"
    assert not any("looks for" in text for text in written)
    unknown = ("blueprints", "parts")
    nothing = {name: np.full_like(NAMED[name], np.nan) for name in unknown}
    assert len(drawing.axes) == len(draw(**nothing).axes) == 1 + 6


def test_mistakes_are_named():
    nowhere = tree_of([[np.nan] * 2], [0], [1])
    assert_refused(lambda: draw(nowhere), "without places cannot be drawn")
    said = "`type_names` must have 3 names"
    assert_refused(lambda: draw(type_names=NAMES[:2]), said)

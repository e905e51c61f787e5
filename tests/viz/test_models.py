"""Figures of what models do with images, read from the drawing itself."""

import json

import numpy as np
import pytest
from matplotlib import colormaps

from tests.tolerance import SUMS
from tfcaps import viz
from tfcaps.rem.parse.parse_tree import parse_tree

RNG = np.random.default_rng(0)
GREY = RNG.random((3, 4, 4, 1))
NAMES = ["cat", "dog", "bee"]


def shown_by(maps, classes=(2, 0, 1)):
    lengths = np.eye(3)[list(classes)]
    return {"lengths": lengths, "classes": np.array(classes), "saliency": maps}


def tree_of(children=3, roots=(1,)):
    couplings = np.full((children, 2), 0.5)
    couplings[0], couplings[-1] = [0.3, 0.7], [0.1, 0.9]
    activations = [np.linspace(0.2, 0.8, children), np.array([0.25, 0.75])]
    return parse_tree(activations, [couplings], roots)


def lines_of(panel):
    return [c for c in panel.collections if hasattr(c, "get_segments")]


def dots_of(panel):
    """Returns positions of the dots, those not reached first if drawn."""
    dots = [c for c in panel.collections if not hasattr(c, "get_segments")]
    return [d.get_offsets().tolist() for d in dots]


def test_saliency_lies_over_the_image_from_0_to_1():
    maps = RNG.random((3, 4, 4)) + 5.0
    drawing, data = viz.saliency(
        GREY,
        {"A": shown_by(maps), "B": shown_by(maps[::-1], (0, 0, 2))},
        labels=[0, 1, 2],
        class_names=NAMES,
    )
    panels = np.array(drawing.axes).reshape(3, 3)
    titles = [[p.get_title() for p in row] for row in panels]
    assert titles == [NAMES, ["bee", "cat", "dog"], ["cat", "cat", "bee"]]
    assert [row[0].get_ylabel() for row in panels] == ["image", "A", "B"]
    image, over = panels[1, 2].images
    np.testing.assert_allclose(
        image.get_array(), 255 * GREY[2, ..., 0], atol=0.51
    )
    low, high = maps[2].min(), maps[2].max()
    np.testing.assert_allclose(
        over.get_array(), (maps[2] - low) / (high - low), atol=SUMS
    )
    assert over.get_alpha() == 0.5 and over.get_clim() == (0, 1)
    np.testing.assert_allclose(data["models"]["A"]["maps"], maps, atol=SUMS)
    assert data["models"]["B"]["classes"] == [0, 0, 2]
    assert len(panels[0, 0].images) == 1


def test_a_constant_saliency_map_is_zero():
    maps = np.full((3, 4, 4), 0.3, np.float32)
    maps[:, 0, 0] *= 1 + 2e-7
    drawing = viz.saliency(GREY, {"A": shown_by(maps)}).figure
    for panel in drawing.axes[3:]:
        assert not np.any(panel.images[1].get_array())


def test_saliency_of_two_views_is_over_both():
    views = RNG.random((3, 4, 6, 2))
    maps = RNG.random((3, 4, 6))
    drawing = viz.saliency(views, {"A": shown_by(maps)}, alpha=0.3).figure
    image, over = drawing.axes[3].images
    assert image.get_array().shape == over.get_array().shape == (4, 12)
    left, right = np.split(np.asarray(over.get_array()), 2, axis=1)
    np.testing.assert_array_equal(left, right)
    assert over.get_alpha() == 0.3


def test_saliency_of_images_in_colour_and_of_standardised_ones():
    colour = (255 * RNG.random((3, 4, 4, 3))).astype(np.uint8)
    drawing = viz.saliency(colour, {"A": shown_by(RNG.random((3, 4, 4)))})
    np.testing.assert_array_equal(
        drawing.figure.axes[1].images[0].get_array(), colour[1]
    )
    drawing = viz.saliency(4 * GREY - 2, {"A": shown_by(RNG.random((3, 4, 4)))})
    shown = drawing.figure.axes[1].images[0].get_array()
    assert (shown.min(), shown.max()) == (0, 255)
    assert np.argmax(shown) == np.argmax(GREY[1])


def test_saliency_that_is_not_there_is_an_error():
    shown = shown_by(RNG.random((3, 4, 4)))
    with pytest.raises(ValueError, match="no saliency map of 'B'. The child"):
        viz.saliency(GREY, {"A": shown, "B": {"lengths": shown["lengths"]}})
    with pytest.raises(ValueError, match="3 images and 2 maps of 'A'"):
        viz.saliency(GREY, {"A": shown_by(RNG.random((2, 4, 4)))})


def test_a_parse_tree_has_a_line_for_each_edge():
    tree = tree_of()
    drawing, data = viz.parse_tree(tree, class_names=["a", "b"])
    panel = drawing.axes[0]
    (lines,) = lines_of(panel)
    ends = np.array(lines.get_segments())
    # The weaker one first, so that the stronger one lies over it.
    np.testing.assert_allclose(
        ends, [[[1 / 6, 0], [0.75, 1]], [[5 / 6, 0], [0.75, 1]]]
    )
    widths, opacities = lines.get_linewidths(), lines.get_colors()[:, 3]
    assert widths[0] < widths[1] and opacities[0] < opacities[1]
    below, reached_below, above, reached_above = dots_of(panel)
    np.testing.assert_allclose(below, [[0.5, 0]])
    np.testing.assert_allclose(reached_below, [[1 / 6, 0], [5 / 6, 0]])
    np.testing.assert_allclose(above, [[0.25, 1]])
    np.testing.assert_allclose(reached_above, [[0.75, 1]])
    drawing.draw_without_rendering()
    colours = panel.collections[2].get_facecolors()
    np.testing.assert_allclose(colours, colormaps["YlOrRd"]([0.2, 0.8]))
    assert [text.get_text() for text in panel.texts] == ["b"]
    assert data[""] == json.loads(json.dumps(tree.to_dict()))


def test_of_many_capsules_only_those_in_the_tree_are_drawn():
    drawing = viz.parse_tree(tree_of(1152, (0, 1))).figure
    dots = dots_of(drawing.axes[0])
    assert [len(part) for part in dots] == [2, 0, 2]
    assert [text.get_text() for text in drawing.axes[0].texts] == ["0", "1"]


def test_many_lines_are_thinner():
    few = viz.parse_tree(tree_of()).figure
    rows = np.tile([0.1, 0.9], (300, 1))
    many = viz.parse_tree(
        parse_tree([np.ones(300), np.ones(2)], [rows], [1])
    ).figure
    strongest = lines_of(few.axes[0])[0].get_linewidths()[-1]
    widths = lines_of(many.axes[0])[0].get_linewidths()
    assert len(widths) == 300
    assert max(widths) < 0.4 * strongest


def test_several_trees_have_titles_and_images():
    trees = {f"image {k}": tree_of() for k in range(6)}
    images = RNG.random((6, 4, 4, 1))
    drawing, data = viz.parse_tree(trees, images=images)
    titles = [panel.get_title() for panel in drawing.axes[:20]]
    assert titles[:5] == list(trees)[:5] and titles[10] == "image 5"
    shown = drawing.axes[15].images[0].get_array()
    np.testing.assert_allclose(shown, 255 * images[5, ..., 0], atol=0.51)
    assert list(data) == list(trees)
    with pytest.raises(ValueError, match="5 images and 6 trees"):
        viz.parse_tree(trees, images=images[:5])


def test_dictionary_images_are_means_of_a_class_and_key():
    keys = np.array([[1, 2], [1, 2], [3, 0], [1, 2], [1, 2], [3, 0], [0, 0]])
    predicted = np.array([0, 0, 0, 1, 0, 1, 1])
    images = RNG.random((7, 4, 4, 1))
    drawing, data = viz.dictionary_images(
        images, keys, predicted, 3, class_names=NAMES, columns=2
    )
    panels = np.array(drawing.axes).reshape(2, 2)
    titles = [[panel.get_title() for panel in row] for row in panels]
    assert titles == [["3", "1"], ["1", "1"]]
    mean = 255 * images[[0, 1, 4], ..., 0].mean(axis=0)
    np.testing.assert_allclose(
        panels[0, 0].images[0].get_array(), mean, atol=0.51
    )
    assert panels[0, 0].get_ylabel() == "cat\n2 keys"
    assert panels[1, 1].get_ylabel() == ""
    first, second = data["classes"]
    assert first["shown"][0]["key"] == [1, 2]
    assert [part["count"] for part in first["shown"]] == [3, 1]
    # Ties are in the order of the keys.
    assert [part["key"] for part in second["shown"]] == [[0, 0], [1, 2]]
    assert second["keys"] == 3


def test_dictionary_images_need_images_keys_and_classes():
    images = np.zeros((4, 2, 2, 1), np.uint8)
    with pytest.raises(ValueError, match="0 images, 0 keys, 0"):
        viz.dictionary_images(images[:0], np.zeros((0, 5), int), [], 3)
    with pytest.raises(ValueError, match="4 images, 3 keys, 4"):
        viz.dictionary_images(images, np.zeros((3, 5), int), [1] * 4, 3)

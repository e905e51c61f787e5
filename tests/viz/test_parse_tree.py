"""Parse trees as nodes and edges, read from the drawing itself."""

import numpy as np
import pytest
from matplotlib import colormaps

from tfcaps import viz
from tfcaps.rem.parse.trees import parse_tree


def tree_of(children=3, roots=(1,)):
    couplings = np.full((children, 2), 0.5)
    couplings[0], couplings[-1] = [0.3, 0.7], [0.1, 0.9]
    activations = [np.linspace(0.2, 0.8, children), np.array([0.25, 0.75])]
    return parse_tree(activations, [couplings], roots)


def lines_of(panel):
    [lines] = [c for c in panel.collections if hasattr(c, "get_segments")]
    return lines


def dots_of(panel):
    """Returns positions of the dots, those not reached first if drawn."""
    dots = [c for c in panel.collections if not hasattr(c, "get_segments")]
    return [d.get_offsets().tolist() for d in dots]


def test_a_parse_tree_has_a_line_for_each_edge():
    tree = tree_of()
    drawing = viz.parse_tree(tree, class_names=["a", "b"])
    panel = drawing.axes[0]
    lines = lines_of(panel)
    # The weaker one first, so that the stronger one lies over it.
    ends = [[[1 / 6, 0], [0.75, 1]], [[5 / 6, 0], [0.75, 1]]]
    np.testing.assert_allclose(np.array(lines.get_segments()), ends)
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


def test_several_trees_have_titles_and_images(rng):
    trees = {f"image {k}": tree_of() for k in range(6)}
    images = rng.random((6, 4, 4, 1))
    drawing = viz.parse_tree(trees, images=images)
    titles = [panel.get_title() for panel in drawing.axes[:20]]
    assert titles[:5] == list(trees)[:5] and titles[10] == "image 5"
    shown = drawing.axes[15].images[0].get_array()
    np.testing.assert_allclose(shown, 255 * images[5, ..., 0], atol=0.51)
    with pytest.raises(ValueError, match="5 images and 6 trees"):
        viz.parse_tree(trees, images=images[:5])

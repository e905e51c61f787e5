"""The figure of maps by several methods, read from the drawing itself."""

import numpy as np
import pytest

from tests.tolerance import SUMS
from tfcaps import viz

RNG = np.random.default_rng(0)
GREY = RNG.random((3, 4, 5, 1))
MAPS = {"ours": RNG.random((3, 4, 5)), "theirs": RNG.normal(size=(3, 4, 5))}
NAMES = ["cat", "dog", "bee"]


def panels_of(drawing, rows, columns):
    return np.array(drawing.figure.axes).reshape(rows, columns)


def test_each_row_is_an_image_and_each_column_a_method():
    drawing = viz.maps(GREY, MAPS, classes=[2, 0, 1], class_names=NAMES)
    panels = panels_of(drawing, 3, 3)
    titles = [panel.get_title() for panel in panels[0]]
    assert titles == ["image", "ours", "theirs"]
    labels = [panel.get_ylabel() for panel in panels[:, 0]]
    assert labels == ["bee", "cat", "dog"]
    assert len(panels[1, 0].images) == 1
    image, over = panels[1, 1].images
    np.testing.assert_allclose(
        image.get_array(), 255 * GREY[1, ..., 0], atol=0.51
    )
    low, high = MAPS["ours"][1].min(), MAPS["ours"][1].max()
    expected = (MAPS["ours"][1] - low) / (high - low)
    np.testing.assert_allclose(over.get_array(), expected, atol=SUMS)
    assert over.get_clim() == (0, 1) and over.get_alpha() == 0.6


def test_what_speaks_against_a_class_is_not_drawn():
    drawing = viz.maps(GREY, MAPS)
    over = panels_of(drawing, 3, 3)[2, 2].images[1].get_array()
    positive = np.maximum(MAPS["theirs"][2], 0.0)
    np.testing.assert_allclose(over, positive / positive.max(), atol=SUMS)


def test_data_has_everything():
    masks = RNG.random((3, 4, 5)) > 0.5
    data = viz.maps(GREY, MAPS, masks=masks, classes=[1, 0, 1]).data
    np.testing.assert_allclose(data["maps"]["theirs"], MAPS["theirs"], 1e-4)
    np.testing.assert_array_equal(data["masks"], masks)
    assert data["classes"] == [1, 0, 1] and data["class_names"] == ["0", "1"]
    assert np.shape(data["images"]) == (3, 4, 5)
    plain = viz.maps(GREY, MAPS).data
    assert plain["masks"] is plain["classes"] is plain["class_names"] is None


def test_outlines_run_around_masks():
    masks = np.zeros((3, 4, 5), bool)
    masks[0, 1:3, 0:2] = True
    panels = panels_of(viz.maps(GREY, MAPS, masks=masks), 3, 3)
    for panel in panels[0]:
        black, white = panel.collections
        assert black.get_linewidth()[0] > white.get_linewidth()[0]
        points = np.concatenate([p.vertices for p in white.get_paths()])
        # Half-way between pixels of the mask and others, also at the border.
        np.testing.assert_allclose(points.min(axis=0), [-0.5, 0.5])
        np.testing.assert_allclose(points.max(axis=0), [1.5, 2.5])
        assert panel.get_xlim() == (-0.5, 4.5)
        assert panel.get_ylim() == (3.5, -0.5)
    assert not panels[1, 1].collections


def test_two_views_have_the_map_and_the_outline_twice():
    views = RNG.random((2, 4, 5, 2))
    masks = np.ones((2, 4, 5), bool)
    drawing = viz.maps(views, {"a": MAPS["ours"][:2]}, masks=masks)
    image, over = panels_of(drawing, 2, 2)[0, 1].images
    assert image.get_array().shape == over.get_array().shape == (4, 10)
    left, right = np.split(np.asarray(over.get_array()), 2, axis=1)
    np.testing.assert_array_equal(left, right)


def test_what_is_not_there_for_each_image_is_an_error():
    with pytest.raises(ValueError, match="at least one method"):
        viz.maps(GREY, {})
    with pytest.raises(ValueError, match="3 images and 2 maps of 'ours'"):
        viz.maps(GREY, {"ours": MAPS["ours"][:2]})
    with pytest.raises(ValueError, match="3 images and 1 masks"):
        viz.maps(GREY, MAPS, masks=np.ones((1, 4, 5), bool))
    with pytest.raises(ValueError, match="one class for each of 3 images"):
        viz.maps(GREY, MAPS, classes=[0, 1])

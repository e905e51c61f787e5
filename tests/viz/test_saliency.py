"""Maps over images, read from the drawing itself."""

import numpy as np
import pytest

from tests.tolerance import SUMS
from tfcaps import viz

RNG = np.random.default_rng(0)
GREY = RNG.random((3, 4, 5, 1))
MAPS = RNG.normal(size=(3, 4, 5)) + 5.0
NAMES = ["cat", "dog", "bee"]


def shown_by(maps, classes=(2, 0, 1)):
    lengths = np.eye(3)[list(classes)]
    return {"lengths": lengths, "classes": np.array(classes), "saliency": maps}


def panels_of(drawing, rows, columns):
    return np.array(drawing.axes).reshape(rows, columns)


def test_each_row_is_a_model_or_a_method():
    methods = {"A": shown_by(MAPS), "B": shown_by(MAPS[::-1], (0, 0, 2))}
    drawing = viz.saliency(
        GREY,
        {**methods, "gradients": MAPS - 5.0},
        labels=[0, 1, 2],
        class_names=NAMES,
    )
    panels = panels_of(drawing, 4, 3)
    titles = [[p.get_title() for p in row] for row in panels]
    assert titles == [
        NAMES, ["bee", "cat", "dog"], ["cat", "cat", "bee"], [""] * 3
    ]  # fmt: skip
    rows = [row[0].get_ylabel() for row in panels]
    assert rows == ["image", "A", "B", "gradients"]
    assert len(panels[0, 0].images) == 1
    image, over = panels[1, 2].images
    shown = 255 * GREY[2, ..., 0]
    np.testing.assert_allclose(image.get_array(), shown, atol=0.51)
    low, high = MAPS[2].min(), MAPS[2].max()
    stretched = (MAPS[2] - low) / (high - low)
    np.testing.assert_allclose(over.get_array(), stretched, atol=SUMS)
    assert over.get_alpha() == 0.5 and over.get_clim() == (0, 1)
    # What speaks against a class is not drawn.
    positive = np.maximum(MAPS[2] - 5.0, 0.0)
    over = panels[3, 2].images[1].get_array()
    np.testing.assert_allclose(over, positive / positive.max(), atol=SUMS)


def test_images_in_colour_and_standardised_ones_are_shown():
    colour = (255 * RNG.random((3, 4, 5, 3))).astype(np.uint8)
    drawing = viz.saliency(colour, {"A": MAPS})
    shown = drawing.axes[1].images[0].get_array()
    np.testing.assert_array_equal(shown, colour[1])
    drawing = viz.saliency(4 * GREY - 2, {"A": MAPS})
    shown = drawing.axes[1].images[0].get_array()
    assert (shown.min(), shown.max()) == (0, 255)
    assert np.argmax(shown) == np.argmax(GREY[1])


@pytest.mark.parametrize(
    ("shown", "more", "message"),
    [
        ({}, {}, "at least one model or method"),
        ({"B": {"lengths": []}}, {}, "no saliency map of 'B'. The child"),
        ({"A": MAPS[:2]}, {}, "3 images and 2 maps of 'A'"),
        ({"A": shown_by(MAPS[:2])}, {}, "3 images and 2 maps of 'A'"),
        ({"A": MAPS}, {"labels": [0, 1]}, "one class for each of 3 images"),
    ],
)  # fmt: skip
def test_what_is_not_there_for_each_image_is_an_error(shown, more, message):
    with pytest.raises(ValueError, match=message):
        viz.saliency(GREY, shown, **more)

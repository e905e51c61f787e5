"""Strokes that components share, and components that are made of them."""

import numpy as np
import pytest
from scipy import ndimage

from examples.kanji import shared as shared_parts
from examples.strokes import layers
from examples.strokes import shared as shared_strokes
from tests.examples.test_kanji import CLASSES, symbols
from tfcaps import rem

PARTS = shared_parts.SharedParts(
    classes=np.array([0, 0, 1, 1]),
    types=np.array([0, 1, 1, 2]),
    places=np.array([[0, -6], [0, 6], [0, -6], [0, 6]]),
)
STROKES = shared_strokes.SharedStrokes(
    parts=np.array([0, 0, 1, 2, 2]),
    types=np.array([0, 0, 1, 1, 1]),
    places=np.array([[-2, 0], [2, 0], [0, 0], [-6, 0], [6, 0]]),
    lines=np.zeros((5, 2)),
)


@pytest.mark.slow
def test_strokes_recur_at_their_places_and_lie_on_ink():
    """A plus has two, three bars three, a frame four, a cross two."""
    images, labels, _ = symbols()
    parts = shared_parts.find(images, labels)
    strokes = shared_strokes.find(images, labels, parts)
    counts = np.bincount(strokes.parts)
    for number, (j, t) in enumerate(zip(*parts[:2], strict=True)):
        *kinds, axis = CLASSES[j]
        kind = kinds[int(parts.places[number][axis] > 0)]
        assert counts[t] == [2, 4, 3, 2][kind]
    straight = np.abs(np.sin(2 * np.deg2rad(strokes.lines[:, 0])))
    assert np.sum(straight < 0.1) == 9 and np.sum(straight > 0.9) == 2
    cells = strokes.cells(images[:8], labels[:8], parts)
    assert cells.shape == (8, 16, 16, strokes.num_types)
    for number, label in enumerate(labels[:8]):
        own = counts[parts.types[parts.classes == label]].sum()
        assert np.sum(cells[number] == 1) == own
        rows, columns, _ = np.nonzero(cells[number] == 1)
        near = ndimage.maximum_filter(images[number, ..., 0], 3)
        assert near[2 * rows + 1, 2 * columns + 1].mean() > 0.9
    assert (cells == -1).any() and (cells == 0).mean() > 0.8


def test_components_stand_where_their_strokes_do():
    active = np.zeros((1, 12, 12, 2), "float32")
    # Two strokes of the first component, and the one of the second.
    active[0, [3, 5], 3, 0] = 1.0
    active[0, 6, 9, 1] = 1.0
    places, components = map(np.asarray, layers.Components(STROKES)(active))
    assert components.shape == (1, 6, 6, 3)
    first, second = np.argwhere(components[0] > 0.5)
    assert first[2] == 0 and second[2] == 1
    # Cell k of the strokes stands at pixel 2 k + 1.
    for child, place in ((first, (9, 7)), (second, (13, 19))):
        np.testing.assert_allclose(places[0][tuple(child)], place, atol=0.01)


def test_a_tree_has_components_as_leaves():
    network, detector = layers.networks((24, 24, 1), 2, PARTS, STROKES)
    trees = rem.trees(network, np.zeros((2, 24, 24, 1), "float32"))
    assert trees.grid == (6, 6, 3)
    assert detector.output_shape == (None, 12, 12, 2)


def test_what_is_not_known_costs_nothing():
    cells = np.array([[[[1, 0], [-1, -1]]]])
    presence = np.array([[[[0.5, 0.25], [0.9, 0.1]]]], "float32")
    cost = float(layers.stroke_loss(cells, presence)[0])
    assert cost == pytest.approx(2 * (np.log(2) - np.log(0.75)), rel=1e-5)

"""Tests of the strokes that parts share."""

import numpy as np
import pytest
from scipy import ndimage

from tests.test_shared_parts import CLASSES, SIDE, data, found
from tfcaps import shared_strokes
from tfcaps.layers import ConstellationCaps, PartCaps

__all__ = ["data", "found"]  # fixtures


@pytest.fixture(scope="module")
def strokes(data, found):
    return shared_strokes.find(*data[:2], found)


def test_lines_are_found_one_by_one():
    ink = np.zeros((1, 24, 30), "float32")
    ink[0, 5:7, 4:20] = 1.0
    ink[0, 8:21, 22:24] = 0.9
    found = shared_strokes.lines(ink)
    assert not found[:, 0].any() and len(found) < 6
    *place, angle, length = found[:2, 1:].T  # then what is left beside them
    np.testing.assert_allclose(
        np.transpose(place), [[5.5, 11.5], [14, 22.5]], atol=1.0
    )
    np.testing.assert_allclose(np.abs(np.cos(angle)), [1, 0], atol=0.01)
    np.testing.assert_allclose(length, [15, 12], rtol=0.3)
    assert not len(shared_strokes.lines(np.zeros((1, 24, 30))))


def test_strokes_recur_at_their_places(found, strokes):
    """A plus has two, three bars three, a frame four, a cross two."""
    counts = np.bincount(strokes.parts)
    for number, (j, t) in enumerate(zip(*found[:2], strict=True)):
        *kinds, axis = CLASSES[j]
        kind = kinds[int(found.places[number][axis] > 0)]
        assert counts[t] == [2, 4, 3, 2][kind]
    straight = np.abs(np.sin(2 * strokes.lines[:, 0]))
    assert np.sum(straight < 0.1) == 9 and np.sum(straight > 0.9) == 2
    assert strokes.num_types == 4
    assert strokes.most == 4 and strokes.instances == 3


def test_a_layer_begins_with_them(data, found, strokes):
    images, labels, _ = data
    parts = PartCaps(4, 3, stride=2, exclusive=False)
    parts(images[:1, ::2, ::2])
    layer = ConstellationCaps(4, instances=3, stride=2)
    layer.build((None, 16, 16, 4, 2))
    strokes.begin(layer)
    slots = np.asarray(layer.slots)
    np.testing.assert_array_equal(slots.sum(axis=0), np.bincount(strokes.parts))
    shifts = np.asarray(layer.shifts)
    for part, t, place in zip(*strokes[:3], strict=True):
        near = np.abs(shifts[t::4, part] - place).max(axis=-1)
        assert near.min() < 1e-4
    cells = strokes.cells(parts, (16, 16), images[:8], labels[:8], found)
    assert cells.shape == (8, 16, 16, 4)
    counts = np.bincount(strokes.parts)
    for number, label in enumerate(labels[:8]):
        own = counts[found.types[found.classes == label]].sum()
        assert np.sum(cells[number] == 1) == own
        rows, columns, _ = np.nonzero(cells[number] == 1)
        near = ndimage.maximum_filter(images[number, ..., 0], 3)
        assert near[2 * rows, 2 * columns].mean() > 0.9
    assert SIDE == 32 and (cells == -1).any() and (cells == 0).mean() > 0.8

"""Parts that classes share, and strokes that parts share."""

import numpy as np
import pytest

from examples.kanji import shared
from tfcaps.models import constellation_capsnet

SIDE = 32
# What stands left and right, or above and below, in each class.
CLASSES = [(0, 1, 1), (2, 3, 1), (0, 3, 0), (2, 1, 0), (1, 0, 0), (3, 2, 1)]


def glyphs():
    """Draws a plus, a frame, three bars and a cross."""
    drawn = np.zeros((4, 11, 11))
    drawn[0, 5] = drawn[0, :, 5] = 1.0
    drawn[1, [0, 10]] = drawn[1, :, [0, 10]] = 1.0
    drawn[2, [0, 5, 10]] = 1.0
    drawn[3] = np.maximum(np.eye(11), np.eye(11)[::-1])
    return drawn


def symbols():
    """Draws 120 images: pixels, labels, and the middles of their parts."""
    draw, shapes = np.random.default_rng(0), glyphs()
    labels = np.arange(120) % len(CLASSES)
    images = draw.normal(0.0, 0.02, (120, SIDE, SIDE, 1))
    middles = np.zeros((120, 2, 2))
    for number, label in enumerate(labels):
        *kinds, axis = CLASSES[label]
        corner = draw.integers(1, 6, 2)
        for kind in kinds:
            down, right = corner
            window = slice(down, down + 11), slice(right, right + 11)
            images[(number, *window, 0)] += shapes[kind]
            middles[number, kinds.index(kind)] = corner + 5
            corner = corner + 14 * np.eye(2, dtype=int)[axis]
    return images.astype("float32"), labels, middles


@pytest.fixture(scope="module")
def data():
    return symbols()


@pytest.fixture(scope="module")
def found(data):
    return shared.find(*data[:2])


def test_parts_are_what_recurs(found):
    assert found.num_types == 4 and found.most == 2
    kinds = {}
    for j, t, place in zip(*found[:3], strict=True):
        *of_class, axis = CLASSES[j]
        second = int(place[axis] > 0)
        kinds.setdefault(of_class[second], set()).add(t)
        assert np.abs(place[1 - axis]) < 3 and 3 < np.abs(place[axis]) < 10
    assert np.abs(found.sizes - 11).max() <= 3
    assert len(kinds) == 4 and all(len(types) == 1 for types in kinds.values())


@pytest.mark.parametrize("apart", [1.2, 1.99])
def test_two_classes_are_never_of_the_same_parts_at_the_same_places(
    data, apart
):
    """Of this distance all pieces of a form would be of one type."""
    found = shared.find(*data[:2], apart=apart)
    assert found.num_types < 4
    seen = set()
    for j, (*_, axis) in enumerate(CLASSES):
        own = found.classes == j
        order = found.places[own, axis].argsort()
        seen.add((axis, *found.types[own][order]))
    assert len(seen) == len(CLASSES)


def test_a_network_begins_with_them(data, found):
    images, labels, middles = data
    model = constellation_capsnet((SIDE, SIDE, 1), 6, 4, max_parts=2)
    found.begin(model)
    layer = model.get_layer("class_caps")
    slots = np.asarray(layer.slots)
    np.testing.assert_array_equal(slots.sum(axis=0), 2.0)
    shifts = np.asarray(layer.shifts)
    for j, t, place in zip(*found[:3], strict=True):
        np.testing.assert_allclose(shifts[t, j], place, atol=1e-4)
    cells = found.cells(model, images, labels)
    assert cells.shape == (120, 16, 16)
    for image in range(5):
        at = np.argwhere((cells[image] >= 0) & (cells[image] < 4))
        apart = np.linalg.norm(2 * at[:, None] + 1 - middles[image], axis=-1)
        assert len(at) == 2 and apart.min(axis=0).max() < 4.0
    assert (cells == 4).mean() > 0.7 and (cells == -1).any()


def test_its_network_is_trained_by_cells(data, found):
    images, labels, _ = data
    network = found.network((SIDE, SIDE, 1), 6)
    assert network.learner().output["presence"].shape[1:] == (8, 8, 5)
    assert found.cells(network, images, labels).shape == (len(images), 8, 8)


def test_what_cannot_be_cut_is_said():
    images = np.zeros((4, 16, 16, 1), "float32")
    images[:, 6:9, 6:9] = 1.0
    with pytest.raises(ValueError, match="two parts with little ink between"):
        shared.find(images, np.array([0, 0, 1, 1]))


def test_a_part_that_a_class_has_twice_takes_two_instances():
    parts = shared.SharedParts(
        np.array([1, 1, 1]), np.array([0, 0, 0]), np.arange(6.0).reshape(3, 2)
    )
    model = constellation_capsnet((32, 32, 1), 2, 1, max_of_type=2)
    parts.begin(model)
    layer = model.get_layer("class_caps")
    assert np.asarray(layer.slots).tolist() == [[0.0, 1.0], [0.0, 1.0]]
    places = np.asarray(layer.shifts)[:, 1]
    np.testing.assert_allclose(places, [[0, 1], [2, 3]], atol=1e-5)

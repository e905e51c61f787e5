"""Kanji of components: what is drawn, and the parts that classes share."""

from importlib import metadata

import numpy as np
import pytest
from scipy import ndimage

from examples.kanji import data, shared
from tests.refusals import assert_user_error
from tests.training.datasets.test_drawn import assert_drawn_by_seed
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
def drawn():
    return symbols()


@pytest.fixture(scope="module")
def parts(drawn):
    return shared.find(*drawn[:2])


def test_parts_are_what_recurs(parts):
    assert parts.num_types == 4 and parts.most == 2
    kinds = {}
    for j, t, place in zip(*parts[:3], strict=True):
        *of_class, axis = CLASSES[j]
        second = int(place[axis] > 0)
        kinds.setdefault(of_class[second], set()).add(t)
        assert np.abs(place[1 - axis]) < 3 and 3 < np.abs(place[axis]) < 10
    assert np.abs(parts.sizes - 11).max() <= 3
    assert len(kinds) == 4 and all(len(types) == 1 for types in kinds.values())


def test_two_classes_are_never_of_the_same_parts_at_the_same_places(drawn):
    """Of this distance all pieces of a form would be of one type."""
    parts = shared.find(*drawn[:2], apart=1.99)
    assert parts.num_types < 4
    seen = set()
    for j, (*_, axis) in enumerate(CLASSES):
        own = parts.classes == j
        order = parts.places[own, axis].argsort()
        seen.add((axis, *parts.types[own][order]))
    assert len(seen) == len(CLASSES)


def test_a_network_begins_with_them_and_cells_are_where_they_are(drawn, parts):
    images, labels, middles = drawn
    model = constellation_capsnet((SIDE, SIDE, 1), 6, 4, max_parts=2)
    parts.begin(model)
    layer = model.get_layer("class_caps")
    np.testing.assert_array_equal(np.asarray(layer.slots).sum(axis=0), 2.0)
    shifts = np.asarray(layer.shifts)
    for j, t, place in zip(*parts[:3], strict=True):
        np.testing.assert_allclose(shifts[t, j], place, atol=1e-4)
    cells = parts.cells(model, images, labels)
    assert cells.shape == (120, 16, 16)
    for image in range(5):
        at = np.argwhere((cells[image] >= 0) & (cells[image] < 4))
        apart = np.linalg.norm(2 * at[:, None] + 1 - middles[image], axis=-1)
        assert len(at) == 2 and apart.min(axis=0).max() < 4.0
    assert (cells == 4).mean() > 0.7 and (cells == -1).any()


def test_what_cannot_be_cut_is_said():
    images = np.zeros((4, 16, 16, 1), "float32")
    images[:, 6:9, 6:9] = 1.0
    with pytest.raises(ValueError, match="two parts with little ink between"):
        shared.find(images, np.array([0, 0, 1, 1]))


def test_what_is_missing_is_named(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert_user_error("package kanjivg, not installed here", data.read, "仔")


@pytest.fixture(scope="module")
def characters():
    if not [*metadata.distributions(name="kanjivg")]:
        pytest.skip("the package kanjivg is not installed (extra kanji)")
    return [data.read(character) for character in data.CHARACTERS]


def test_components_are_in_many_characters_and_unseen_ones(characters):
    assert len({*data.CHARACTERS, *data.UNSEEN}) == 100 + 27
    new = [data.read(character) for character in data.UNSEEN]
    assert {len(character.kinds) for character in new} == {2, 3}
    assert characters[0].name == "person child"
    kinds = [k for character in characters for k in set(character.kinds)]
    counts = np.bincount(kinds)
    assert len(counts) == len(data.COMPONENTS) == 30 and counts.min() >= 3
    assert {len(character.kinds) for character in characters} == {2, 3}


def test_masks_are_boxes_and_of_one_component_each(characters):
    (images, labels), masks = data.draw(40, 1, "仔休")
    assert images.shape == (40, 48, 48, 1) and masks.loose is None
    assert masks.parts.shape == (40, 3, 48, 48)
    assert masks.parts.sum(axis=1).max() == 1
    person, other = (
        np.array([ndimage.center_of_mass(mask) for mask in masks.parts[:, k]])
        for k in range(2)
    )
    assert np.all(person[:, 1] + 5 < other[:, 1])
    names = np.array(masks.kind_names)[masks.kinds[:, :2]]
    assert set(names[:, 0]) == {"person"}
    assert set(names[labels == 1, 1]) == {"tree"}
    # What is between strokes, too.
    assert masks.parts.sum(axis=(2, 3))[:, 1].min() > 150


@pytest.mark.slow
def test_what_is_drawn_depends_on_the_seed_alone(characters):
    assert_drawn_by_seed(data, 3860097189)

"""Generated figures: what tells their class, and what their masks are of."""

from collections import Counter

import numpy as np
import pytest
from scipy import ndimage

from training.datasets import figures

FIVE = figures.DESIGNS["figures"]


@pytest.fixture(scope="module")
def drawn():
    return figures.draw(300, 5)


def apart(first, second):
    """Smallest distance of two masks' pixels; 1 if they are neighbours."""
    return ndimage.distance_transform_edt(~first)[second].min()


def test_the_parts_alone_do_not_tell_the_class():
    for figure in FIVE.figures:
        assert sorted(figure) == sorted(FIVE.kinds)
    assert len(set(FIVE.figures)) == 10


def test_a_part_at_its_slot_leaves_three_classes_at_least():
    for slot in zip(*FIVE.figures, strict=True):
        assert sorted(Counter(slot).values()) == [3, 3, 4]
    for kind in FIVE.kinds:
        slots = Counter(figure.index(kind) for figure in FIVE.figures)
        assert sorted(slots.values()) == [3, 3, 4]


def test_kinds_and_centres_are_those_of_the_masks(drawn):
    (_, labels), masks = drawn
    assert masks.kind_names == FIVE.kinds
    kinds = np.array(FIVE.kinds)[masks.kinds]
    np.testing.assert_array_equal(kinds, np.array(FIVE.figures)[labels])
    for some, centres, kinds in (
        (masks.parts, masks.centres, masks.kinds),
        (masks.loose, masks.loose_centres, masks.loose_kinds),
    ):
        there = some.any(axis=(2, 3))
        np.testing.assert_array_equal(np.isfinite(centres[..., 0]), there)
        np.testing.assert_array_equal(kinds >= 0, there)
        middles = [ndimage.center_of_mass(mask) for mask in some[there]]
        gaps = np.linalg.norm(centres[there] - middles, axis=-1)
        assert gaps.max() < 1.3 and gaps.mean() < 0.4
    discs = masks.loose[masks.loose_kinds == 1].sum(axis=(1, 2))
    assert np.abs(np.median(discs) - 30) <= 2


def test_one_to_three_loose_parts_lie_off_the_figure(drawn):
    _, masks = drawn
    there = masks.loose.any(axis=(2, 3))
    assert masks.loose.shape == (300, 3, 32, 32)
    assert set(there.sum(axis=1)) == {1, 2, 3}
    assert masks.loose.sum(axis=1).max() == 1
    gaps = np.array(
        [
            apart(own, loose.any(axis=0)) - 1.0
            for own, loose in zip(masks.object, masks.loose, strict=True)
        ]
    )
    assert gaps.min() >= 1.8  # corners
    assert np.median(gaps) >= figures.LOOSE_GAP


def test_figures_are_loaded_with_masks_of_test_images():
    data = figures.generate(None, 0.25, train=80, test=40)
    assert data.image_shape == (32, 32, 1)
    assert data.class_names[0] == "bar disc / triangle ring square"
    assert len(set(data.class_names)) == 10
    assert len(data.train.labels) == 60 and len(data.validation.labels) == 20
    part, masks = data.test, data.masks
    assert len(masks.object) == len(masks.centres) == len(part.labels)
    bright = part.images.pixels[..., 0] >= 0.3 * 255
    shown = masks.object | masks.loose.any(axis=1)
    assert (bright == shown).mean() > 0.97

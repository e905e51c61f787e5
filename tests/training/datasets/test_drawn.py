"""Drawn images: what tells their class, what masks are of, and the seed."""

import dataclasses
import functools
import zlib
from collections import Counter

import numpy as np
import pytest
from scipy import ndimage

from training.datasets import figures, load
from training.datasets.data import Masks

FIVE = figures.DESIGNS["figures"]


@pytest.fixture(scope="module")
def drawn():
    return figures.draw(300, 5)


def apart(first, second):
    """Smallest distance of two masks' pixels; 1 if they are neighbours."""
    return ndimage.distance_transform_edt(~first)[second].min()


def test_neither_the_parts_alone_nor_one_of_them_at_its_slot_tell_the_class():
    assert len(set(FIVE.figures)) == 10
    for figure in FIVE.figures:
        assert sorted(figure) == sorted(FIVE.kinds)
    for slot in range(len(FIVE.kinds)):
        kinds = Counter(figure[slot] for figure in FIVE.figures)
        assert sorted(kinds.values()) == [3, 3, 4]


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
    pairs = zip(masks.parts.any(axis=1), masks.loose.any(axis=1), strict=True)
    gaps = np.array([apart(own, loose) - 1.0 for own, loose in pairs])
    assert gaps.min() >= 1.8  # corners
    assert np.median(gaps) >= figures.LOOSE_GAP


def assert_same(found, wanted):
    np.testing.assert_equal(vars(found), vars(wanted))


def test_masks_stay_with_images_as_they_are():
    data = figures.generate(train=20, test=20)
    few = data.reduced(7)
    every = [*map(bytes, data.test.images.pixels)]
    rows = [every.index(bytes(image)) for image in few.test.images.pixels]
    wanted = {**vars(data.masks)}
    for name in wanted.keys() - {"kind_names"}:
        wanted[name] = wanted[name][rows]
    assert_same(few.masks, Masks(**wanted))
    bare = dataclasses.replace(data, masks=None)
    for changed in (bare.reduced(3), data.resized(3), data.centre_cropped(2)):
        assert changed.masks is None


@pytest.mark.slow
def test_they_are_loaded_by_name_with_masks_of_test_images(monkeypatch):
    few = functools.partial(figures.generate, train=400, test=100)
    monkeypatch.setattr(figures, "generate", few)
    data = load("figures", None, 0.25, seed=1)
    assert data.image_shape == (32, 32, 1)
    assert data.class_names[0] == "bar disc / triangle ring square"
    parts = data.train, data.validation, data.test
    assert [len(part.labels) for part in parts] == [300, 100, 100]
    wanted = few(seed=1).test.images.pixels
    np.testing.assert_array_equal(data.test.images.pixels, wanted)
    shown = data.masks.parts.any(axis=1) | data.masks.loose.any(axis=1)
    bright = data.test.images.pixels[..., 0] >= 0.35 * 255
    assert (bright & ~shown).mean() < 0.02 and bright[shown].mean() > 0.95


def assert_drawn_by_seed(source, checksum):
    """What is drawn depends on the seed alone, on every machine."""
    (images, labels), masks = source.draw(20, 0)
    # Of the first machine they were drawn on.
    drawn = images, labels, masks.parts, masks.loose, masks.kinds
    known = [array.tobytes() for array in drawn if array is not None]
    assert zlib.crc32(b"".join(known)) == checksum
    (again, same), masks_again = source.draw(20, 0)
    np.testing.assert_array_equal(again, images)
    np.testing.assert_array_equal(same, labels)
    assert_same(masks_again, masks)
    (others, _), _ = source.draw(20, 2)
    assert len({image.tobytes() for image in (*images, *others)}) == 40


@pytest.mark.slow
def test_what_is_drawn_depends_on_the_seed_alone():
    assert_drawn_by_seed(figures, 3293637693)
    first, other = (figures.generate(seed=k, train=20, test=20) for k in (0, 1))
    assert not np.array_equal(first.test.images[:], other.test.images[:])
    assert_same(first.masks, figures.generate(train=20, test=20).masks)

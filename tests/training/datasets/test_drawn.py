"""Drawn images: what tells their class, what masks are of, and the seed."""

import dataclasses
import functools
import zlib
from collections import Counter

import numpy as np
import pytest

from training.datasets import figures, load

FIVE = figures.DESIGNS["figures"]


@pytest.fixture(scope="module")
def drawn():
    return figures.draw(300, 5)


def test_neither_the_parts_alone_nor_one_of_them_at_its_slot_tell_the_class():
    assert len(set(FIVE.figures)) == 10
    for figure in FIVE.figures:
        assert sorted(figure) == sorted(FIVE.kinds)
    for slot in range(len(FIVE.kinds)):
        kinds = Counter(figure[slot] for figure in FIVE.figures)
        assert sorted(kinds.values()) == [3, 3, 4]


def test_parts_are_drawn_where_and_of_what_they_are(drawn):
    (images, labels), parts = drawn
    assert parts.kind_names == FIVE.kinds
    kinds = np.array(FIVE.kinds)[parts.kinds]
    np.testing.assert_array_equal(kinds, np.array(FIVE.figures)[labels])
    centres = np.concatenate([parts.parts, parts.loose], axis=1)
    kinds = np.concatenate([parts.kinds, parts.loose_kinds], axis=1)
    np.testing.assert_array_equal(kinds >= 0, np.isfinite(centres[..., 0]))
    bright = images[..., 0] >= 0.35 * 255
    for number, kind in enumerate(FIVE.kinds):
        image, slot = np.nonzero(kinds == number)
        row, column = np.rint(centres[image, slot]).astype(int).T
        # The middle of a ring is empty.
        assert bright[image, row, column].mean() == (kind != "ring")
    grid = np.indices(bright.shape[1:]).reshape(2, -1).T
    away = np.linalg.norm(grid - centres[:, :, None], axis=-1)
    away = np.nanmin(away, axis=1).reshape(bright.shape)
    assert bright[away > 6].mean() < 0.001


def test_one_to_three_loose_parts_lie_off_the_figure(drawn):
    _, parts = drawn
    there = parts.loose_kinds >= 0
    assert parts.loose.shape == (300, 3, 2)
    assert set(there.sum(axis=1)) == {1, 2, 3}
    away = parts.parts[:, :, None] - parts.loose[:, None]
    gaps = np.linalg.norm(away, axis=-1).min(axis=1)[there]
    assert gaps.min() >= 7.0 + figures.LOOSE_GAP


def assert_same(found, wanted):
    np.testing.assert_equal(vars(found), vars(wanted))


def test_parts_stay_with_images_as_they_are():
    data = figures.generate(train=20, test=20)
    few = data.reduced(7)
    every = [*map(bytes, data.test.images.pixels)]
    rows = [every.index(bytes(image)) for image in few.test.images.pixels]
    assert_same(few.masks, data.masks[rows])
    bare = dataclasses.replace(data, masks=None)
    for changed in (bare.reduced(3), data.resized(3), data.centre_cropped(2)):
        assert changed.masks is None


@pytest.mark.slow
def test_they_are_loaded_by_name_with_parts_of_test_images(monkeypatch):
    few = functools.partial(figures.generate, train=400, test=100)
    monkeypatch.setattr(figures, "generate", few)
    data = load("figures", None, 0.25, seed=1)
    assert data.image_shape == (32, 32, 1)
    assert data.class_names[0] == "bar disc / triangle ring square"
    parts = data.train, data.validation, data.test
    assert [len(part.labels) for part in parts] == [300, 100, 100]
    wanted = few(seed=1).test.images.pixels
    np.testing.assert_array_equal(data.test.images.pixels, wanted)
    assert_same(data.masks, few(seed=1).masks)


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
    assert_drawn_by_seed(figures, 3375455273)
    first, other = (figures.generate(seed=k, train=20, test=20) for k in (0, 1))
    assert not np.array_equal(first.test.images[:], other.test.images[:])
    assert_same(first.masks, figures.generate(train=20, test=20).masks)

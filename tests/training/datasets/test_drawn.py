"""Drawn images: what tells their class, what masks are of, and the seed."""

import dataclasses
import functools
import zlib
from collections import Counter
from importlib import metadata

import numpy as np
import pytest
from scipy import ndimage

from training.datasets import figures, kanji, load, syndacate
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
    pairs = zip(masks.object, masks.loose.any(axis=1), strict=True)
    gaps = np.array([apart(own, loose) - 1.0 for own, loose in pairs])
    assert gaps.min() >= 1.8  # corners
    assert np.median(gaps) >= figures.LOOSE_GAP


LINES = dict(zip("AEFILMNWXZ", (3, 4, 3, 1, 2, 4, 3, 4, 2, 3), strict=True))


@pytest.fixture(scope="module")
def letters():
    return syndacate.draw(60, 5)


def test_letters_have_their_lines_and_stand_in_the_image(letters):
    (images, labels), masks = letters
    assert np.bincount(labels).tolist() == 10 * [6]
    lines = np.array(list(LINES.values()))[labels]
    there = masks.kinds >= 0
    np.testing.assert_array_equal(there.sum(axis=1), lines)
    np.testing.assert_array_equal(masks.parts.any(axis=(2, 3)), there)
    np.testing.assert_array_equal(np.isfinite(masks.centres[..., 0]), there)
    assert masks.parts.sum(axis=1).max() == 1
    # Half a broad line at most is cut off.
    border = images[:, [0, -1]].max(axis=(1, 2, 3)) > 0
    assert border.mean() < 0.2


def test_kinds_are_the_directions_of_the_upright_letter(letters):
    (_, labels), masks = letters
    names = np.array(masks.kind_names)
    for letter, *kinds in (
        ("A", "steep rise", "steep fall", "bar"), ("F", "stem", "bar", "bar"),
        ("N", "stem", "fall", "stem"), ("X", "rise", "fall"),
    ):  # fmt: skip
        for own in masks.kinds[labels == list(LINES).index(letter)]:
            assert names[own[own >= 0]].tolist() == kinds


def test_lines_lie_where_their_centres_are(letters):
    (_, labels), masks = letters
    grid = np.indices((100, 100))
    for n, k in np.argwhere(masks.kinds >= 0):
        if labels[n] == 8:
            continue  # the lines of X share their middle
        where = grid[:, masks.parts[n, k]].mean(axis=1)
        assert np.linalg.norm(where - masks.centres[n, k]) < 3.0


def assert_same(found, wanted):
    np.testing.assert_equal(vars(found), vars(wanted))


def needs_package(source):
    if source is kanji and not [*metadata.distributions(name="kanjivg")]:
        pytest.skip("the package kanjivg is not installed (extra kanji)")


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
@pytest.mark.parametrize(
    ("source", "side", "names", "filled"),
    [
        (figures, 32, ("bar disc / triangle ring square",), 0.95),
        (kanji, 48, ("person child", "person cow"), 0.25),  # boxes
        (syndacate, 100, (*"AEFILMNWXZ",), 0.95),
    ],
    ids=["figures", "kanji", "syndacate"],
)
def test_they_are_loaded_by_name_with_masks_of_test_images(
    source, side, names, filled, monkeypatch
):
    needs_package(source)
    few = functools.partial(source.generate, train=400, test=100)
    monkeypatch.setattr(source, "generate", few)
    data = load(source.__name__.rpartition(".")[-1], None, 0.25, seed=1)
    assert data.image_shape == (side, side, 1)
    assert data.class_names[: len(names)] == names
    parts = data.train, data.validation, data.test
    assert [len(part.labels) for part in parts] == [300, 100, 100]
    wanted = few(seed=1).test.images.pixels
    np.testing.assert_array_equal(data.test.images.pixels, wanted)
    shown = data.masks.object | data.masks.loose.any(axis=1)
    bright = data.test.images.pixels[..., 0] >= 0.35 * 255
    assert (bright & ~shown).mean() < 0.02 and bright[shown].mean() > filled


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "checksum"),
    [(figures, 3293637693), (kanji, 3860097189), (syndacate, 2044257823)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_drawn_depends_on_the_seed_alone(source, checksum):
    needs_package(source)
    (images, labels), masks = source.draw(20, 0)
    # Of the first machine they were drawn on.
    drawn = images, labels, masks.parts, masks.loose, masks.kinds
    assert zlib.crc32(b"".join(map(np.ndarray.tobytes, drawn))) == checksum
    (again, same), masks_again = source.draw(20, 0)
    np.testing.assert_array_equal(again, images)
    np.testing.assert_array_equal(same, labels)
    assert_same(masks_again, masks)
    (others, _), _ = source.draw(20, 2)
    assert len({image.tobytes() for image in (*images, *others)}) == 40
    first, other = (source.generate(seed=k, train=20, test=20) for k in (0, 1))
    assert not np.array_equal(first.test.images[:], other.test.images[:])
    assert_same(first.masks, source.generate(train=20, test=20).masks)

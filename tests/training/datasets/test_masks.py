"""Drawn images and their masks: of a seed, and masks stay with their images."""

import dataclasses
import zlib
from importlib import metadata

import numpy as np
import pytest

from training.datasets import figures, kanji, syndacate
from training.datasets.data import Data, Masks
from training.images import Images, Split


@pytest.fixture
def data():
    """Images from whose brightness the masks can be told."""
    rng = np.random.default_rng(0)
    kinds = rng.choice([0.0, 0.4, 0.5, 0.9], (20, 6, 6, 1)).astype(np.float32)
    every = Split(Images(kinds), np.arange(20) % 2)
    return Data(
        "materialize_votes",
        every,
        every.take(slice(4)),
        every,
        ("a", "b"),
        {"more": every},
        masks=masks_of(kinds),
    )


def masks_of(images):
    grey = images[..., 0]
    levels = np.stack([grey == np.float32(k) for k in (0.4, 0.5)], axis=1)
    own = grey == np.float32(0.9)
    return Masks(
        own[:, np.newaxis],
        levels,
        kinds=np.round(10 * grey[:, :1, 0]).astype(int),
        loose_kinds=np.round(10 * grey[:, 1, :2]).astype(int),
        centres=10 * grey[:, :1, :2],
        loose_centres=10 * grey[:, :2, 2:4],
        kind_names=("a", "b"),
    )


def assert_same(found, wanted):
    for field in dataclasses.fields(Masks):
        np.testing.assert_array_equal(
            getattr(found, field.name), getattr(wanted, field.name)
        )


def test_masks_are_reduced_with_their_images(data):
    few = data.reduced(7)
    assert_same(few.masks, masks_of(few.test.images.pixels))


def test_masks_are_of_images_as_they_are(data):
    bare = dataclasses.replace(data, masks=None)
    for changed in (bare.reduced(3), data.resized(3), data.centre_cropped(2)):
        assert changed.masks is None
        assert len(changed.others["more"].labels) == len(changed.test.labels)


@pytest.mark.parametrize(
    ("source", "checksum"),
    [(figures, 3293637693), (kanji, 3860097189), (syndacate, 2044257823)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_drawn_depends_on_the_seed_alone(source, checksum):
    if source is kanji and not [*metadata.distributions(name="kanjivg")]:
        pytest.skip("the package kanjivg is not installed (extra kanji)")
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

"""Masks of data sets: they stay with their images."""

import dataclasses

import numpy as np
import pytest

from training.datasets.data import Data
from training.datasets.masks import Masks, inked
from training.image_data import Images, Split


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
        validation_masks=masks_of(kinds[:4]),
    )


def masks_of(images):
    grey = images[..., 0]
    levels = np.stack([grey == np.float32(k) for k in (0.4, 0.5)], axis=1)
    own = grey == np.float32(0.9)
    classes = np.full((len(images), 1), 3)
    return Masks(
        own,
        own[:, np.newaxis],
        levels,
        classes,
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
    assert few.masks.object.shape == (7, 6, 6)
    assert_same(few.masks, masks_of(few.test.images.pixels))
    assert_same(few.validation_masks, masks_of(few.validation.images.pixels))


def test_masks_are_cropped_with_their_images(data):
    cut = data.centre_cropped(4)
    for found, images, before in (
        (cut.masks, cut.test.images, data.masks),
        (cut.validation_masks, cut.validation.images, data.validation_masks),
    ):
        wanted = masks_of(images.pixels)
        moved = {
            name: getattr(before, name) - 1
            for name in ("centres", "loose_centres")
        }
        kept = {
            name: getattr(before, name)
            for name in ("kinds", "loose_kinds", "of_classes")
        }
        assert_same(found, dataclasses.replace(wanted, **moved, **kept))


def test_centres_are_where_the_parts_are():
    own = np.zeros((1, 1, 12, 12), bool)
    own[0, 0, 4:10, 2:8] = True
    masks = Masks(own[:, 0], own, own, centres=np.array([[[6.5, 4.5]]]))
    for changed in (
        masks.resized(24),
        masks.resized(6),
        masks.centre_cropped(9),
    ):
        middle = np.argwhere(changed.parts[0, 0]).mean(axis=0)
        np.testing.assert_allclose(changed.centres[0, 0], middle)
        assert changed.loose_centres is None


def test_masks_are_resized_with_their_images(data):
    twice = data.resized(12).masks
    assert twice.parts.shape == (20, 1, 12, 12) and twice.parts.dtype == bool
    half = data.resized(3)
    assert half.test.images.shape == half.masks.object.shape + (1,)
    # A pixel whose mask all around is the same keeps it.
    all_around = np.ones((20, 2, 5, 5), bool)
    for row in range(5):
        for column in range(5):
            window = data.masks.loose[:, :, row : row + 2, column : column + 2]
            same = window.all(axis=(2, 3)) | ~window.any(axis=(2, 3))
            all_around[:, :, row, column] = same
    inner = twice.loose[:, :, 1:11:2, 1:11:2]
    known = data.masks.loose[:, :, :5, :5]
    np.testing.assert_array_equal(inner[all_around], known[all_around])


@pytest.mark.parametrize("half", [False, True])
def test_half_a_pixel_is_enough(half):
    own = np.array([[[True, half], [False, False]]])
    masks = Masks(own, own[:, np.newaxis], own[:, np.newaxis][:, :0])
    assert masks.resized(1).object.all() == half
    assert masks.resized(1).loose.shape == (1, 0, 1, 1)


def test_data_without_masks_have_none_afterwards(data):
    bare = dataclasses.replace(data, masks=None, validation_masks=None)
    for changed in (bare.reduced(3), bare.resized(3), bare.centre_cropped(2)):
        assert changed.masks is None and changed.validation_masks is None
        assert len(changed.others["more"].labels) == len(changed.test.labels)


@pytest.mark.parametrize(
    "kind", [np.uint8, np.float32], ids=["bytes", "floats"]
)
def test_ink_is_what_is_brighter_than_a_pale_rim(kind):
    white = 255 if kind == np.uint8 else 1.0
    grey = (white * np.array([0.0, 0.2, 0.4, 1.0])).astype(kind)
    images = grey.reshape(1, 2, 2, 1)
    assert inked(images).tolist() == [[[False, False], [True, True]]]

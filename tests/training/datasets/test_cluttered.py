"""Digits among pieces of other digits."""

import numpy as np
import pytest
from scipy import ndimage

from training import datasets
from training.datasets import cluttered, prepared
from training.datasets.data import checked

# Ten rows and six columns of ink; each class is 50 brighter than the last.
INK = 100 + np.add.outer(np.arange(10), np.arange(6))


def patterned(count):
    """Images of 28x28 pixels with `INK` in the middle."""
    labels = np.arange(count) % 3
    images = np.zeros((count, 28, 28, 1), np.uint8)
    images[:, 9:19, 11:17, 0] = INK + 50 * labels[:, None, None]
    return images, labels


@pytest.fixture
def mnist():
    return checked("mnist", patterned(30), patterned(12), ["a", "b", "c"])


def classes_of(image):
    """The class that each pixel comes from; -2 on the ground."""
    return image[..., 0].astype(int) // 50 - 2


def test_a_digit_stands_whole_among_pieces_of_other_classes(mnist):
    data = cluttered.mnist(mnist, None, 0.2)
    assert data.name == "cluttered_mnist"
    assert data.image_shape == (40, 40, 1)
    assert [len(part.labels) for part in (data.train, data.test)] == [24, 12]
    assert len(data.validation.labels) == 6
    for part, masks in (
        (data.test, data.masks),
        (data.validation, data.validation_masks),
    ):
        for image, label, own, pieces in zip(
            part.images.pixels,
            part.labels,
            masks.object,
            masks.loose,
            strict=True,
        ):
            kinds = classes_of(image)
            inside = np.argwhere(own)
            (top, left), (last, right) = inside.min(axis=0), inside.max(axis=0)
            assert (last - top, right - left) == (9, 5)
            digit = image[top : last + 1, left : right + 1, 0]
            np.testing.assert_array_equal(digit, INK + 50 * label)
            assert (kinds[own] == label).all()
            assert (kinds[pieces.any(axis=0)] != label).all()
            drawn = own | pieces.any(axis=0)
            np.testing.assert_array_equal(drawn, image[..., 0] > 0)


def test_pieces_touch_nothing(mnist):
    masks = cluttered.mnist(mnist, None, 0.0).masks
    things = np.concatenate([masks.object[:, np.newaxis], masks.loose], axis=1)
    for each in things:
        for number, thing in enumerate(each):
            wide = ndimage.maximum_filter(thing, 5)
            assert not (wide & np.delete(each, number, axis=0)).any()
    sides = [
        np.ptp(np.argwhere(piece), axis=0).max() + 1
        for piece in masks.loose.reshape(-1, 40, 40)
        if piece.any()
    ]
    assert max(sides) <= 8


def test_no_place_is_taken_where_there_is_no_room():
    canvas = np.ones((1, 12, 12, 1), np.uint8)
    draw = np.random.default_rng(0)
    assert cluttered._free(canvas, 3, draw).tolist() == [[-1, -1]]
    canvas[0, 3:11, 5:] = 0
    places = {
        tuple(cluttered._free(canvas, 3, draw)[0].tolist()) for _ in range(50)
    }
    # Two dark rows and columns lie around the piece, or the border.
    assert places == {(5, c) for c in (7, 8, 9)} | {(6, c) for c in (7, 8, 9)}


def test_the_same_images_are_made_at_every_call(mnist):
    data = cluttered.mnist(mnist, None, 0.0)
    assert np.bincount(data.train.labels).tolist() == [10, 10, 10]
    assert len({image.tobytes() for image in data.train.images.pixels}) == 30
    assert data.validation.images.shape == (0, 40, 40, 1)
    assert data.validation_masks.object.shape == (0, 40, 40)
    again = cluttered.mnist(mnist, None, 0.0)
    np.testing.assert_array_equal(
        again.train.images.pixels, data.train.images.pixels
    )
    np.testing.assert_array_equal(again.masks.loose, data.masks.loose)


def test_cluttered_digits_are_loaded_by_name(monkeypatch, mnist):
    data = datasets.load("cluttered_digits")
    assert data.image_shape == (32, 32, 1)
    assert data.test.images.pixels.dtype == np.float32
    assert len(data.train.labels) == 8 * 809
    assert len(data.test.labels) == 2 * 898
    assert data.masks.parts.shape == (1796, 1, 32, 32)
    assert 4 < data.masks.loose.any(axis=(2, 3)).sum(axis=1).mean() <= 6
    ink = data.masks.object.sum(axis=(1, 2))
    assert ink.min() > 20 and ink.max() < 200
    monkeypatch.setattr(prepared, "load", lambda *args: mnist)
    loaded = datasets.load("cluttered_mnist", validation=0.0)
    assert len(loaded.train.labels) == 30 and loaded.masks is not None


@pytest.mark.parametrize(
    "name", ["figures", "cluttered_digits", "cluttered_mnist"]
)
def test_what_is_anywhere_is_not_shifted_further(name):
    assert datasets.protocol(name).shift == 0

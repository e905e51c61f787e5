"""Sources of images: what is read, and what is refused."""

import dataclasses
import os

import numpy as np
import pytest
from PIL import Image

from cli import UserError
from tests.refusals import assert_user_error
from training import datasets, images

_BILINEAR = Image.Resampling.BILINEAR


def arrays(**changes):
    rng = np.random.default_rng(0)
    usable = {
        "x_train": rng.integers(0, 256, (12, 6, 5), dtype=np.uint8),
        "y_train": np.arange(12) % 3,
        "x_test": rng.integers(0, 256, (6, 6, 5), dtype=np.uint8),
        "y_test": np.arange(6) % 3,
    }
    return {k: v for k, v in {**usable, **changes}.items() if v is not None}


def write_image(path, size=(5, 6), mode="RGB"):
    """Writes a picture that no other path has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(list(os.fsencode(path)))
    pixels = draw.integers(0, 256, (*size[::-1], 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)


def test_digits_are_split_in_halves_of_the_same_classes():
    data = datasets.load("digits")
    assert data.image_shape == (8, 8, 1)
    assert data.num_classes == 10
    data = datasets.load("digits", validation=0.0)
    assert len(data.train.labels) + len(data.test.labels) == 1797
    counts = np.bincount(data.train.labels) - np.bincount(data.test.labels)
    assert np.abs(counts).max() <= 1
    pixels = data.train.images.pixels
    assert 0.0 == pixels.min() < pixels.max() == 1.0


def load_npz(tmp_path, **changes):
    options = {"validation": changes.pop("validation", 0.0)}
    np.savez(tmp_path / "mine.npz", **arrays(**changes))
    return datasets.load(str(tmp_path / "mine.npz"), **options)


def test_npz_files_are_read(tmp_path):
    column = (np.arange(12) % 3)[:, np.newaxis]  # as in Keras' own CIFAR
    data = load_npz(tmp_path, y_train=column)
    assert data.image_shape == (6, 5, 1)
    assert data.class_names == ("0", "1", "2")
    pixels = data.train.images.pixels
    np.testing.assert_array_equal(pixels[..., 0], arrays()["x_train"])
    np.testing.assert_array_equal(data.train.labels, column[:, 0])


def test_a_file_in_the_data_folder_is_taken_for_its_data_set(tmp_path):
    np.savez(tmp_path / "mnist.npz", **arrays())
    data = datasets.load("mnist", str(tmp_path), validation=0.0)
    pixels = data.train.images.pixels
    np.testing.assert_array_equal(pixels[..., 0], arrays()["x_train"])


_FLOATS = np.random.default_rng(0).random((12, 6, 5))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "must have the arrays x_train, y_train, x_test"),
        ({"y_train": np.arange(12) % 3 - 1}, "they go from -1 to 1"),
        ({"y_train": 2 * (np.arange(12) % 3)}, "gaps; they go from 0 to 4"),
        ({"y_test": np.full(6, 3)}, "test labels must be in 0 to 2"),
        ({"y_test": np.zeros(6)}, "must be one label for each test"),
        ({"y_test": np.zeros(5, int)}, "must be one label for each test"),
        ({"y_test": np.zeros((6, 2), int)}, "must be one label for each test"),
        ({"y_train": np.zeros(12, int)}, "labels must be in 0 to 0"),
        ({"x_test": np.zeros((6, 5, 5), np.uint8)}, "they must have one shape"),
        ({"x_train": np.zeros((12, 30))}, "training images must have the sha"),
        ({"x_train": np.zeros((12, 6, 5, 4))}, "1 to 3 channels"),
        ({"x_train": 255 * _FLOATS}, "must be uint8, or floats in 0 to 1"),
        ({"x_train": np.full((12, 6, 5), np.nan)}, "from nan to nan"),
        ({"x_train": np.zeros((12, 6, 5), int)}, "must be uint8, or floats"),
        ({"x_train": np.zeros((0, 6, 5))}, "there are no training images"),
        ({"x_train": np.full((12, 6, 5), -np.inf)}, "from -inf to -inf"),
        ({"y_train": np.full(12, 2**62)}, "they go from 46"),
        ({"y_test": np.full(6, -1)}, "test labels must be in 0 to 2"),
        ({"x_train": np.array([{}], object)}, "is not a readable .npz file"),
    ],
)
def test_unusable_npz_files_are_refused(tmp_path, changes, message):
    assert_user_error(message, load_npz, tmp_path, **changes)


@pytest.mark.parametrize(
    ("name", "data_dir", "message"),
    [
        ("no_such_set", ".", "unknown data set 'no_such_set'"),
        ("a/b", ".", "unknown data set 'a/b'"),
        ("./missing/folder", None, "neither a folder nor an .npz"),
        ("photos/", None, "neither a folder nor an .npz"),
        ("", None, "neither a folder nor an .npz"),
        ("mnist", "missing", "--data-dir .* is not a folder"),
        ("mnist", ".", "mnist is not prepared in"),
    ],
)
def test_unknown_names_and_folders_are_refused(
    tmp_path, monkeypatch, name, data_dir, message
):
    monkeypatch.chdir(tmp_path)
    assert_user_error(message, datasets.load, name, data_dir)


def rows_of(part):
    """Images and labels as bytes, one for each image."""
    return [
        image.tobytes() + bytes([label])
        for image, label in zip(part.images.pixels, part.labels, strict=True)
    ]


def test_validation_is_held_out_of_training_the_same_at_every_call(tmp_path):
    rng = np.random.default_rng(0)
    usable = {
        "x_train": rng.integers(0, 256, (60, 6, 5), dtype=np.uint8),
        "y_train": np.repeat([0, 1, 2], [40, 19, 1]),
    }
    data = load_npz(tmp_path, validation=0.25, **usable)
    assert np.bincount(data.validation.labels).tolist() == [10, 5]
    assert np.bincount(data.train.labels).tolist() == [30, 14, 1]
    kept, held = rows_of(data.train), rows_of(data.validation)
    assert not set(kept) & set(held)
    whole = load_npz(tmp_path, **usable)
    assert whole.validation.images.shape == (0, 6, 5, 1)
    assert sorted(rows_of(whole.train)) == sorted(kept + held)
    again = load_npz(tmp_path, validation=0.25, **usable)
    assert rows_of(again.validation) == held
    assert rows_of(whole.test) == rows_of(data.test)


def test_every_part_is_reduced(tmp_path):
    data = datasets.load("digits")
    more = dataclasses.replace(data, others={"more": data.test})
    few = more.reduced(20)
    for part in (few.train, few.validation, few.test, few.others["more"]):
        assert len(part.images) == len(part.labels) == 20
    assert len(more.reduced(100).validation.labels) == 90
    assert set(rows_of(few.validation)) <= set(rows_of(data.validation))


def test_every_part_is_resized_and_all_but_training_cropped():
    data = datasets.load("digits", resize=16, crop=6)
    assert data.train.images.shape[1:] == (16, 16, 1)
    assert data.validation.images.shape[1:] == data.image_shape == (6, 6, 1)
    whole = datasets.load("digits", resize=16).test.images[:]
    np.testing.assert_array_equal(data.test.images[:], whole[:, 5:11, 5:11])
    with pytest.raises(UserError, match="9 rows and columns cannot be cut"):
        datasets.load("digits", crop=9)


def test_only_what_is_drawn_has_a_seed():
    with pytest.raises(UserError, match="for figures; digits is not drawn"):
        datasets.load("digits", seed=1)


@pytest.mark.parametrize("shape", [(32, 48, 3), (20, 20, 2), (7, 9, 1)])
def test_resizing_is_pillows(shape):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (70, *shape), dtype=np.uint8)
    resized = images.resize(pixels, 24)
    assert resized.dtype == np.uint8
    for image, new in zip(pixels, resized, strict=True):
        for k in range(shape[2]):
            plane = Image.fromarray(image[..., k]).resize((24, 24), _BILINEAR)
            np.testing.assert_array_equal(new[..., k], plane)
    floats = images.resize(pixels / 255.0, 24)
    assert floats.dtype == np.float32
    assert np.abs(255 * floats - resized).max() < 1.001


def test_channel_statistics_are_of_pixels_in_0_to_1():
    pixels = np.array([[0, 255], [255, 255]], np.uint8).reshape(1, 1, 2, 2)
    mean, std = datasets.channel_statistics(pixels)
    assert mean == (0.5, 1.0) and std == (0.5, 0.0)
    assert datasets.channel_statistics(pixels / 255.0) == (mean, std)


# ---------------------------------------------------------- images in memory

BYTES = np.arange(0, 256, 17, dtype=np.uint8).reshape(4, 2, 2, 1)


@pytest.mark.parametrize(
    "rows",
    [slice(None), slice(1, 3), np.array([3, 0]), np.eye(4, dtype=bool)[1]],
)
@pytest.mark.parametrize("kind", [np.uint8, np.float16, np.float32, np.float64])
def test_what_is_taken_is_float32_in_0_to_1(kind, rows):
    pixels = BYTES if kind == np.uint8 else (BYTES / 255).astype(kind)
    split = images.Split(images.Images(pixels), np.arange(4))
    taken = split.images[rows]
    assert taken.dtype == np.float32
    wanted = pixels[rows].astype(np.float32)
    if kind == np.uint8:
        wanted = wanted / np.float32(255)
    np.testing.assert_array_equal(taken, wanted)
    assert split.images.pixels is pixels
    # Others stay as they were read, with their labels.
    some = split.take(rows)
    assert some.images.pixels.dtype == kind
    np.testing.assert_array_equal(some.images.pixels, pixels[rows])
    np.testing.assert_array_equal(some.labels, np.arange(4)[rows])
    assert some.images.shape == (len(some.labels), 2, 2, 1)


def test_other_numbers_are_no_pixels():
    with pytest.raises(TypeError, match="uint8, or floats.*int64"):
        images.Images(np.zeros((1, 2, 2, 1), np.int64))

"""Sources of images: what is read, and what is refused."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tfcaps.cli import UserError
from training import datasets
from training.batches import Batches, to_float

_REAL_DATA = Path(
    os.environ.get(
        "TFDS_DATA_DIR",
        Path(__file__).parents[2] / "shared" / "tensorflow_datasets",
    )
)


def arrays(**changes):
    """Arrays of a usable `.npz` file; `None` leaves one out."""
    rng = np.random.default_rng(0)
    usable = {
        "x_train": rng.integers(0, 256, (12, 6, 5), dtype=np.uint8),
        "y_train": np.arange(12) % 3,
        "x_test": rng.integers(0, 256, (6, 6, 5), dtype=np.uint8),
        "y_test": np.arange(6) % 3,
    }
    return {k: v for k, v in {**usable, **changes}.items() if v is not None}


def write_image(path, size=(5, 6), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size).save(path)


def test_digits_are_split_in_halves_of_the_same_classes():
    data = datasets.load("digits")
    assert data.image_shape == (8, 8, 1)
    assert data.num_classes == 10
    assert len(data.train[1]) + len(data.test[1]) == 1797
    counts = np.bincount(data.train[1]) - np.bincount(data.test[1])
    assert np.abs(counts).max() <= 1
    assert 0.0 <= data.train[0].min() < data.train[0].max() == 1.0


def test_npz_files_are_read(tmp_path):
    column = (np.arange(12) % 3)[:, np.newaxis]  # as in Keras' own CIFAR
    np.savez(tmp_path / "mine.npz", **arrays(y_train=column))
    data = datasets.load(str(tmp_path / "mine.npz"))
    assert data.image_shape == (6, 5, 1)
    assert data.class_names == ("0", "1", "2")
    np.testing.assert_array_equal(data.train[0][..., 0], arrays()["x_train"])
    np.testing.assert_array_equal(data.train[1], column[:, 0])


_FLOATS = np.random.default_rng(0).random((12, 6, 5))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "must have the arrays x_train, y_train, x_test"),
        ({"y_train": np.arange(12) % 3 - 1}, "but one label is -1"),
        ({"y_train": 2 * (np.arange(12) % 3)}, "but one label is 2"),
        ({"y_test": np.full(6, 3)}, "test labels must be in 0 to 2"),
        ({"y_test": np.zeros(6)}, "test labels must be integers from 0"),
        ({"y_test": np.zeros(5, int)}, "must be one label for each test"),
        ({"y_test": np.zeros((6, 2), int)}, "must be one label for each test"),
        ({"y_train": np.zeros(12, int)}, "labels must be in 0 to 0"),
        ({"x_test": np.zeros((6, 5, 5), np.uint8)}, "they must have one shape"),
        ({"x_train": np.zeros((12, 30))}, "training images must have the sha"),
        ({"x_train": np.zeros((12, 6, 5, 2))}, "1 or 3 channels"),
        ({"x_train": 255 * _FLOATS}, "must be uint8, or floats in 0 to 1"),
        ({"x_train": np.full((12, 6, 5), np.nan)}, "floats in 0 to 1"),
        ({"x_train": np.zeros((12, 6, 5), int)}, "must be uint8, or floats"),
        ({"x_train": np.zeros((0, 6, 5))}, "training images must have the sha"),
    ],
)
def test_unusable_npz_files_are_refused(tmp_path, changes, message):
    np.savez(tmp_path / "mine.npz", **arrays(**changes))
    with pytest.raises(UserError, match=message):
        datasets.load(str(tmp_path / "mine.npz"))


def test_broken_and_pickled_npz_files_are_refused(tmp_path):
    path = tmp_path / "mine.npz"
    with pytest.raises(UserError, match="there is no file"):
        datasets.load(str(path))
    np.savez(path, **arrays())
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(UserError, match="is not a readable .npz file"):
        datasets.load(str(path))
    np.savez(path, **arrays(x_train=np.array([{}], object)))
    with pytest.raises(UserError, match="is not a readable .npz file"):
        datasets.load(str(path))


def test_folders_of_class_folders_are_read(tmp_path):
    for name, count in (("cats", 10), ("dogs", 5)):
        for k in range(count):
            write_image(tmp_path / name / f"{k}.png")
    data = datasets.load(str(tmp_path))
    assert data.class_names == ("cats", "dogs")
    assert data.image_shape == (6, 5, 3)
    assert np.bincount(data.test[1]).tolist() == [2, 1]
    assert np.bincount(data.train[1]).tolist() == [8, 4]


def test_unusable_folders_are_refused(tmp_path):
    with pytest.raises(UserError, match="at least two folders"):
        datasets.load(str(tmp_path))
    for name in ("cats", "dogs"):
        write_image(tmp_path / name / "1.png")
    with pytest.raises(UserError, match="cats must have at least two images"):
        datasets.load(str(tmp_path))
    for name in ("cats", "dogs"):
        write_image(tmp_path / name / "2.png")
    write_image(tmp_path / "dogs" / "3.png", size=(6, 6))
    with pytest.raises(UserError, match="must have one size and colour mode"):
        datasets.load(str(tmp_path))
    (tmp_path / "dogs" / "3.png").write_text("no image")
    with pytest.raises(UserError, match="3.png is not a readable image"):
        datasets.load(str(tmp_path))


def test_unknown_names_and_folders_are_refused(tmp_path):
    with pytest.raises(UserError, match="unknown data set 'no_such_set'"):
        datasets.load("no_such_set", str(tmp_path))
    with pytest.raises(UserError, match="neither a folder nor an .npz file"):
        datasets.load(str(tmp_path / "missing" / "folder"))
    with pytest.raises(UserError, match="neither a folder nor an .npz file"):
        datasets.load("")
    with pytest.raises(UserError, match="unknown data set 'a/b'"):
        datasets.load("a/b", str(tmp_path))
    with pytest.raises(UserError, match="--data-dir .* is not a folder"):
        datasets.load("mnist", str(tmp_path / "missing"))
    with pytest.raises(UserError, match="mnist is not prepared in"):
        datasets.load("mnist", str(tmp_path))


@pytest.mark.skipif(
    not (_REAL_DATA / "cifar10").is_dir(),
    reason="no prepared cifar10 in TFDS_DATA_DIR",
)
def test_tensorflow_datasets_are_read():
    data = datasets.load("cifar10", str(_REAL_DATA))
    assert data.image_shape == (32, 32, 3)
    assert data.class_names[0] == "airplane"
    assert len(data.train[1]) == 50_000 and len(data.test[1]) == 10_000
    assert data.train[0].dtype == np.uint8


def test_batches_cover_every_image_once_in_an_order_of_the_epoch():
    images = np.arange(10, dtype=np.uint8).reshape(10, 1, 1, 1)
    batches = Batches(images, np.arange(10), 4, seed=1)
    seen = []
    for epoch in (0, 1, 0):
        batches.start_epoch(epoch)
        parts = [batches[k] for k in range(batches.num_batches)]
        assert [len(labels) for _, labels in parts] == [4, 4, 2]
        order = np.concatenate([labels for _, labels in parts])
        pixels = np.concatenate([images for images, _ in parts]).ravel()
        np.testing.assert_allclose(pixels, order / 255, rtol=1e-6)
        assert sorted(order) == list(range(10))
        seen.append(order.tolist())
    assert seen[0] == seen[2] != seen[1]


def test_batches_without_a_seed_keep_the_order():
    batches = Batches(np.zeros((5, 2, 2, 1)), np.arange(5), 2)
    labels = [batches[k][1].tolist() for k in range(3)]
    assert labels == [[0, 1], [2, 3], [4]]


def test_shifts_move_images_and_bring_in_zeros():
    images = np.zeros((50, 5, 5, 1), np.float32)
    images[:, 2, 2] = 1.0
    shifted, _ = Batches(images, np.arange(50), 50, seed=0, shift=1)[0]
    assert shifted.shape == images.shape
    np.testing.assert_array_equal(shifted.sum(axis=(1, 2, 3)), 1.0)
    places = {tuple(np.argwhere(image)[0][:2]) for image in shifted}
    assert places == {(r, c) for r in (1, 2, 3) for c in (1, 2, 3)}
    edges = np.ones((50, 5, 5, 1), np.float32)
    shifted, _ = Batches(edges, np.arange(50), 50, seed=0, shift=1)[0]
    assert {int(image.sum()) for image in shifted} == {16, 20, 25}


def test_images_become_floats_in_0_to_1():
    assert to_float(np.array([0, 255], np.uint8)).tolist() == [0.0, 1.0]
    assert to_float(np.array([0.5])).dtype == np.float32

"""What is made of MNIST: affNIST and our affine MNIST."""

import numpy as np
import pytest
from scipy.io import savemat

from cli import UserError
from tests.prepared_data import tfds_folder
from training import datasets
from training.datasets import affnist
from training.datasets.data import Data, checked


def digits(count):
    """Images of 28x28 pixels: a bar, a lying L, and a T, upright and thin."""
    images = np.zeros((count, 28, 28, 1), np.uint8)
    labels = np.arange(count) % 3
    images[:, 5:23, 12:15] = 255
    images[labels == 1, 20:23, 12:24] = 250
    images[labels == 2, 5:8, 6:22] = 250
    return images, labels


@pytest.fixture
def mnist() -> Data:
    return checked("mnist", digits(30), digits(12), ["bar", "L", "T"])


def write_affnist(path, images, labels, **changes):
    fields = {
        "affine_human_readable": np.zeros((6, len(images))),
        "image": images.reshape(len(images), -1).T,
        "label_int": labels[np.newaxis].astype(np.uint8),
        **changes,
    }
    savemat(path, {"affNISTdata": fields})


@pytest.mark.parametrize("transposed", [False, True])
def test_affnist_is_read_upright(mnist, tmp_path, transposed):
    made = affnist.generate(None, 0.1, mnist=mnist)
    images, labels = made.test.images.pixels, made.test.labels
    written = images.swapaxes(1, 2) if transposed else images
    write_affnist(tmp_path / "test.mat", written, labels)
    data = affnist.load(str(tmp_path), 0.1, mnist=mnist)
    assert data.name == "affnist"
    assert data.image_shape == (40, 40, 1)
    np.testing.assert_array_equal(data.test.images.pixels, images)
    np.testing.assert_array_equal(data.test.labels, labels)


@pytest.mark.parametrize("make", [affnist.load, affnist.generate])
def test_expanded_mnist_is_for_training_and_validation(mnist, tmp_path, make):
    made = affnist.generate(None, 0.1, mnist=mnist).test
    write_affnist(tmp_path / "test.mat", made.images.pixels, made.labels)
    data = make(str(tmp_path), 0.1, mnist=mnist)
    edge = ((0, 0), (6, 6), (6, 6), (0, 0))
    wanted = np.pad(mnist.train.images.pixels, edge)
    np.testing.assert_array_equal(data.train.images.pixels, wanted)
    for images, labels in (data.validation, data.others["expanded"]):
        wanted = np.pad(mnist.test.images.pixels, edge)
        np.testing.assert_array_equal(images.pixels, wanted)
        np.testing.assert_array_equal(labels, mnist.test.labels)
    none = make(str(tmp_path), 0.0, mnist=mnist)
    assert none.validation.images.shape == (0, 40, 40, 1)
    assert len(none.train.labels) == 30


IMAGES, LABELS = np.zeros((3, 40, 40), np.uint8), np.arange(3)


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"no MATLAB" * 100),
        lambda path: savemat(path, {"digits": IMAGES}),
        lambda path: savemat(path, {"affNISTdata": {"image": IMAGES}}),
        lambda path: write_affnist(path, IMAGES[:, :28], LABELS),
        lambda path: write_affnist(path, IMAGES, LABELS[:2]),
    ],
    ids=["empty", "bytes", "names", "labels", "size", "count"],
)
def test_unusable_affnist_files_are_refused(mnist, tmp_path, write):
    with pytest.raises(UserError, match="affnist needs test.mat"):
        affnist.load(str(tmp_path), 0.1, mnist=mnist)
    write(tmp_path / "test.mat")
    with pytest.raises(UserError, match="test.mat is not a file of affNI"):
        affnist.load(str(tmp_path), 0.1, mnist=mnist)


def test_affine_digits_are_of_affnists_ranges(mnist):
    blocks = np.zeros((2000, 28, 28, 1), np.uint8)
    blocks[:, 12:16, 4:24] = 100  # a bar, and its brighter right end
    blocks[:, 12:16, 18:24] = 200
    many = checked("mnist", digits(30), (blocks, np.zeros(2000, int)), None)
    made = affnist.generate(None, 0.1, mnist=many).test.images.pixels[..., 0]
    where = np.indices((40, 40))
    ends, wholes = (made > 130).astype(float), made.astype(float)
    middles = [
        np.einsum("nhw,chw->cn", ink, where) / ink.sum(axis=(1, 2))
        for ink in (ends, wholes)
    ]
    down, right = middles[0] - middles[1]
    degrees = np.degrees(np.arctan2(down, right))
    assert -25 < degrees.min() < -17 and 17 < degrees.max() < 25
    length = np.hypot(down, right)
    assert 1.4 < length.max() / length.min() < 1.8  # of 0.8 to 1.2
    areas = wholes.sum(axis=(1, 2)) / blocks[0].sum()
    assert 0.6 < areas.min() < 0.72 and 1.35 < areas.max() < 1.5
    assert np.ptp(middles[1], axis=1).min() > 6  # places


def test_what_is_made_of_mnist_is_loaded_by_name(tmp_path):
    given = zip(*digits(30), strict=True)
    examples = [{"image": image, "label": int(label)} for image, label in given]
    folder = tfds_folder(tmp_path, "mnist", train=examples, test=examples[:6])
    data = datasets.load("affine_mnist", folder)
    assert data.test.images.shape == (6, 40, 40, 1)
    images, labels = data.test
    write_affnist(tmp_path / "test.mat", images.pixels, labels)
    assert len(datasets.load("affnist", folder).test.labels) == 6

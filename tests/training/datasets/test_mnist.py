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


def test_affine_maps_are_of_affnists_ranges():
    draw = np.random.default_rng(0)
    maps = np.array([affnist.random_map(draw) for _ in range(2000)])
    # A step to the right is scaled and turned, and not sheared.
    down, right = maps[:, :, 1].T
    degrees = np.degrees(np.arctan2(-down, right))
    assert -20.0 <= degrees.min() < -19.5 and 19.5 < degrees.max() <= 20.0
    widths = np.hypot(down, right)
    # Turns and shears keep areas.
    for scales in (widths, np.linalg.det(maps) / widths):
        assert 0.7999 < scales.min() < 0.81 and 1.19 < scales.max() < 1.2001


def test_digits_are_sent_through_a_map_to_places_where_they_are_whole():
    blocks = np.zeros((28, 28, 1), np.uint8)
    blocks[4:8, 4:8] = 100
    blocks[14:18, 20:24] = 200
    forward = np.array([[0.9, -0.3], [0.2, 1.1]])
    draw = np.random.default_rng(0)
    steps, places, areas = [], [], []
    for _ in range(300):
        moved = affnist.transform(blocks, forward, draw)
        assert moved.shape == (40, 40, 1) and moved.dtype == np.uint8
        # Two blocks, each 16 pixels large, by the determinant 1.05.
        areas.append(moved.sum() / 300 / 16 / 1.05)
        bright = np.argwhere(moved[..., 0] > 120)[:, :2].mean(axis=0)
        others = (moved[..., 0] > 50) & (moved[..., 0] <= 110)
        dark = np.argwhere(others & near(others, bright)).mean(axis=0)
        steps.append(bright - dark)
        places.append(bright)
    wanted = forward @ [10, 16]
    np.testing.assert_allclose(np.mean(steps, axis=0), wanted, atol=0.3)
    np.testing.assert_allclose(areas, 1.0, atol=0.1)
    reach = np.ptp(places, axis=0)
    # What is left of 40 by the blocks and their distance.
    sides = np.abs(wanted) + np.abs(forward) @ [4, 4]
    np.testing.assert_allclose(reach, 40 - sides, atol=0.7)


def near(mask, point):
    """Leaves out the pale rim of a bright block."""
    return np.hypot(*(np.indices(mask.shape) - point[:, None, None])) > 6


def test_affine_mnist_is_the_same_at_every_call(mnist):
    data, again = (affnist.generate(None, 0.1, mnist=mnist) for _ in range(2))
    assert data.name == "affine_mnist"
    assert data.test.labels.tolist() == mnist.test.labels.tolist()
    for name in ("train", "validation", "test"):
        pixels = (getattr(each, name).images.pixels for each in (data, again))
        np.testing.assert_array_equal(*pixels)
    assert len({image.tobytes() for image in data.test.images.pixels}) == 12


def test_what_is_made_of_mnist_is_loaded_by_name(tmp_path):
    given = zip(*digits(30), strict=True)
    examples = [{"image": image, "label": int(label)} for image, label in given]
    folder = tfds_folder(tmp_path, "mnist", train=examples, test=examples[:6])
    data = datasets.load("affine_mnist", folder)
    assert data.test.images.shape == (6, 40, 40, 1)
    images, labels = data.test
    write_affnist(tmp_path / "test.mat", images.pixels, labels)
    assert len(datasets.load("affnist", folder).test.labels) == 6

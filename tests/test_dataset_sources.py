"""Data sets in their original formats, in small files made here."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from tests.test_datasets import write_image
from tfcaps.cli import UserError
from training import datasets
from training import images as pixels
from training.datasets import affnist, multimnist
from training.datasets.data import Data, checked

_AZIMUTHS = np.arange(0, 360, 20)
_ELEVATIONS = np.arange(30, 75, 5)


def tfds_folder(folder, name, **splits):
    """Prepares examples as TensorFlow Datasets would; returns the folder."""
    tfds = pytest.importorskip("tensorflow_datasets")

    info = tfds.builder(name, data_dir=folder).info
    os.makedirs(info.data_dir)
    # What is not given is text, such as a file name.
    blank = dict.fromkeys(info.features, "")
    writer = tfds.core.SequentialWriter(info, max_examples_per_shard=1000)
    writer.initialize_splits(list(splits))
    writer.add_examples(
        {name: [blank | e for e in part] for name, part in splits.items()}
    )
    writer.close_all()
    return str(folder)


def toys(raw_azimuth):
    """One smallNORB image pair for each class and viewpoint.

    The left view tells the azimuth, the right one the elevation.
    """
    rows = [
        (category, elevation, azimuth)
        for category in range(5)
        for elevation in range(9)
        for azimuth in range(18)
    ]
    category, elevation, azimuth = np.array(rows, np.int32).T
    views = np.stack([azimuth, elevation], axis=1).astype(np.uint8)
    pairs = np.broadcast_to(views[..., None, None], (len(rows), 2, 96, 96))
    if raw_azimuth:
        azimuth = 2 * azimuth
    nothing = np.zeros_like(category)
    info = np.stack([nothing, elevation, azimuth, nothing], axis=1)
    return pairs, category, info


def write_matrix(path, array, magic):
    lengths = [*array.shape, 1, 1][: max(array.ndim, 3)]
    header = np.array([magic, array.ndim, *lengths], "<i4")
    packed = path.suffix == ".gz"
    with gzip.open(path, "wb", 1) if packed else open(path, "wb") as file:
        file.write(header.tobytes() + array.tobytes())


@pytest.fixture(scope="module")
def small_norb_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("smallnorb")
    pairs, category, info = toys(raw_azimuth=True)
    for split, instances in (("training", "46789"), ("testing", "01235")):
        stem = f"smallnorb-5x{instances}x9x18x6x2x96x96-{split}"
        # One is left packed, as it is downloaded.
        dat = folder / f"{stem}-dat.mat{'.gz' if split == 'testing' else ''}"
        write_matrix(dat, pairs, 0x1E3D4C55)
        write_matrix(folder / f"{stem}-cat.mat", category, 0x1E3D4C54)
        write_matrix(folder / f"{stem}-info.mat", info, 0x1E3D4C54)
    return str(folder)


@pytest.fixture(scope="module")
def small_norb_prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    pairs, category, info = toys(raw_azimuth=False)
    examples = [
        {
            "image": pair[0, ..., None],
            "image2": pair[1, ..., None],
            "label_category": label,
            "instance": numbers[0],
            "label_elevation": numbers[1],
            "label_azimuth": numbers[2],
            "label_lighting": numbers[3],
        }
        for pair, label, numbers in zip(
            pairs, category.astype(np.int64), info.astype(np.int64), strict=True
        )
    ]
    return tfds_folder(folder, "smallnorb", train=examples, test=examples)


def viewpoints(part):
    """The degrees of azimuth and elevation that images show, and classes."""
    images, labels = part
    assert (images == images[:, :1, :1]).all()
    azimuth, elevation = images[:, 0, 0].T
    return (
        set(_AZIMUTHS[azimuth].tolist()),
        set(_ELEVATIONS[elevation].tolist()),
        set(labels.tolist()),
    )


@pytest.mark.parametrize("source", ["small_norb_files", "small_norb_prepared"])
def test_small_norb_is_split_by_viewpoint(source, request):
    folder = request.getfixturevalue(source)
    every = set(_AZIMUTHS.tolist()), set(_ELEVATIONS.tolist()), set(range(5))

    data = datasets.load("smallnorb", folder, validation=0.0)
    assert data.name == "smallnorb" and not data.others
    assert data.image_shape == (96, 96, 2) and data.num_classes == 5
    for part in (data.train, data.test):
        assert len(part[1]) == 5 * 9 * 18 and viewpoints(part) == every

    trained = {300, 320, 340, 0, 20, 40}
    data = datasets.load("smallnorb-azimuth", folder, validation=0.0)
    assert data.name == "smallnorb-azimuth"
    for part in (data.train, data.others["familiar"]):
        assert len(part[1]) == 5 * 9 * 6
        assert viewpoints(part) == (trained, *every[1:])
    assert len(data.test[1]) == 5 * 9 * 12
    assert viewpoints(data.test) == (every[0] - trained, *every[1:])

    trained = {30, 35, 40}
    data = datasets.load("smallnorb-elevation", folder, resize=8, crop=6)
    for part in (data.train, data.validation, data.others["familiar"]):
        assert viewpoints(part)[1:] == (trained, every[2])
    assert len(data.validation[1]) == 5 * 5  # a tenth of each class's 54
    assert len(data.train[1]) + 25 == len(data.others["familiar"][1])
    assert len(data.test[1]) == 5 * 6 * 18
    assert viewpoints(data.test)[1] == every[1] - trained
    assert data.train[0].shape[1:] == (8, 8, 2)
    assert data.others["familiar"][0].shape[1:] == (6, 6, 2)


def test_unusable_small_norb_files_are_refused(small_norb_files, tmp_path):
    with pytest.raises(UserError, match="smallnorb needs its six original fil"):
        datasets.load("smallnorb", str(tmp_path))
    paths = sorted(Path(small_norb_files).iterdir())
    for path in paths:
        (tmp_path / path.name).symlink_to(path)
    broken = tmp_path / paths[-1].name  # training-info.mat
    content = broken.read_bytes()
    for bad in (b"", b"MATLAB 5.0" + content[10:], content[:-4]):
        broken.unlink()
        broken.write_bytes(bad)
        with pytest.raises(UserError, match="info.mat is not a file of small"):
            datasets.load("smallnorb", str(tmp_path))
    broken.unlink()
    with pytest.raises(UserError, match="has no file smallnorb-5x46789.*info"):
        datasets.load("smallnorb", str(tmp_path))
    other = np.zeros((3, 4), np.int32)
    write_matrix(broken, other, 0x1E3D4C54)
    with pytest.raises(UserError, match="train split .* not belong together"):
        datasets.load("smallnorb", str(tmp_path))


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
    made = affnist.generate(mnist, None, 0.1, maps=2)
    images, labels = made.test
    written = images.swapaxes(1, 2) if transposed else images
    write_affnist(tmp_path / "test.mat", written, labels)
    data = affnist.load(mnist, str(tmp_path), 0.1)
    assert data.name == "affnist"
    assert data.image_shape == (40, 40, 1)
    np.testing.assert_array_equal(data.test[0], images)
    np.testing.assert_array_equal(data.test[1], labels)


def test_numbered_affnist_files_are_joined_in_their_order(mnist, tmp_path):
    images, labels = affnist.generate(mnist, None, 0.1).test
    (tmp_path / "test_batches").mkdir()
    for number in (1, 2, 10):
        part = slice(number, number + 1)
        path = tmp_path / "test_batches" / f"{number}.mat"
        write_affnist(path, images[part], labels[part])
    data = affnist.load(mnist, str(tmp_path), 0.1)
    np.testing.assert_array_equal(data.test[0], images[[1, 2, 10]])
    np.testing.assert_array_equal(data.test[1], labels[[1, 2, 10]])


@pytest.mark.parametrize("make", [affnist.load, affnist.generate])
def test_expanded_mnist_is_for_training_and_validation(mnist, tmp_path, make):
    write_affnist(
        tmp_path / "test.mat", *affnist.generate(mnist, None, 0.1).test
    )
    data = make(mnist, str(tmp_path), 0.1)
    np.testing.assert_array_equal(data.train[0][:, 6:34, 6:34], mnist.train[0])
    assert data.train[0].shape == (30, 40, 40, 1)
    assert data.train[0].sum() == mnist.train[0].sum()
    for images, labels in (data.validation, data.others["expanded"]):
        np.testing.assert_array_equal(images, pixels.centred(mnist.test[0], 40))
        np.testing.assert_array_equal(labels, mnist.test[1])
    none = make(mnist, str(tmp_path), 0.0)
    assert none.validation[0].shape == (0, 40, 40, 1)
    assert len(none.train[1]) == 30


def test_unusable_affnist_files_are_refused(mnist, tmp_path):
    with pytest.raises(UserError, match="affnist needs test.mat, or 1.mat"):
        affnist.load(mnist, str(tmp_path), 0.1)
    with pytest.raises(UserError, match="no folder is given"):
        affnist.load(mnist, None, 0.1)
    path = tmp_path / "test.mat"
    images, labels = np.zeros((3, 40, 40), np.uint8), np.arange(3)
    for write in (
        lambda: path.write_bytes(b""),
        lambda: path.write_bytes(b"no MATLAB" * 100),
        lambda: savemat(path, {"digits": images}),
        lambda: savemat(path, {"affNISTdata": {"image": images}}),
        lambda: write_affnist(path, images[:, :28], labels),
        lambda: write_affnist(path, images, labels[:2]),
    ):
        write()
        with pytest.raises(UserError, match="test.mat is not a file of affNI"):
            affnist.load(mnist, str(tmp_path), 0.1)


def test_affine_maps_are_of_affnists_ranges():
    draw = np.random.default_rng(0)
    maps = np.array([affnist.random_map(draw) for _ in range(2000)])
    # A step to the right is scaled and turned, and not sheared.
    down, right = maps[:, :, 1].T
    angles = np.arctan2(-down, right)
    degrees = np.degrees(angles)
    assert -20.0 <= degrees.min() < -19.5 and 19.5 < degrees.max() <= 20.0
    # Turned back, a step down is scaled, and sheared to the side.
    heights = np.cos(angles) * maps[:, 0, 0] + np.sin(angles) * maps[:, 1, 0]
    aside = np.cos(angles) * maps[:, 1, 0] - np.sin(angles) * maps[:, 0, 0]
    shears = aside / heights
    assert -0.2 <= shears.min() < -0.19 and 0.19 < shears.max() <= 0.2001
    scales = np.stack([heights, np.hypot(down, right)])
    assert 0.7999 < scales.min() and (scales.min(axis=1) < 0.81).all()
    assert scales.max() < 1.2001 and (scales.max(axis=1) > 1.19).all()
    drawn = np.stack([degrees, shears, *scales])
    off_diagonal = np.corrcoef(drawn)[np.triu_indices(4, 1)]
    assert np.abs(off_diagonal).max() < 0.1  # 4 standard deviations


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


def test_affine_mnist_has_so_many_maps_of_each_digit_at_every_call(mnist):
    data = affnist.generate(mnist, None, 0.1, maps=3)
    assert data.name == "affine_mnist"
    assert data.test[0].shape == (36, 40, 40, 1)
    assert data.test[1].tolist() == 3 * mnist.test[1].tolist()
    again = affnist.generate(mnist, None, 0.1, maps=3)
    np.testing.assert_array_equal(data.test[0], again.test[0])
    assert len({image.tobytes() for image in data.test[0]}) == 36


def test_multimnist_has_fixed_pairs_for_validation_and_test(mnist):
    data = multimnist.generate(mnist, None, 0.2, shift=2, partners=3)
    assert data.name == "multimnist"
    assert data.train[0].shape == (24, 36, 36, 1)
    assert data.train[1].shape == (24,)
    assert data.validation[0].shape == (6, 36, 36, 1)
    assert data.test[0].shape == (36, 36, 36, 1)
    for _, labels in (data.validation, data.test):
        assert (labels.sum(axis=1) == 2).all() and labels.max() == 1
    base = np.tile(mnist.test[1], 3)
    assert (data.test[1][np.arange(36), base] == 1).all()
    again = multimnist.generate(mnist, None, 0.2, shift=2, partners=3)
    np.testing.assert_array_equal(data.test[0], again.test[0])
    # The bar is 18 pixels long, from row 5 + 4, and moves by up to 2.
    assert not data.test[0][:, :7].any() and data.test[0][:, 7].any()
    none = multimnist.generate(mnist, None, 0.0)
    assert none.validation[0].shape == (0, 36, 36, 1)
    assert none.validation[1].shape == (0, 3)
    assert len(none.train[1]) == 30


def write_tiny_imagenet(folder):
    ids = ["n02", "n01"]
    folder.mkdir()
    (folder / "wnids.txt").write_text("\n".join(ids) + "\n")
    (folder / "words.txt").write_text("n01\tgoldfish, carp\nn03\tmoth\n")
    for label, wnid in enumerate(ids):
        for k in range(10):
            path = folder / "train" / wnid / "images" / f"{wnid}_{k}.JPEG"
            # Some images are grey.
            mode, colour = (
                ("L", 100 * label) if k else ("RGB", 3 * (100 * label,))
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new(mode, (64, 64), colour).save(path)
    lines = []
    for k, wnid in enumerate(["n01", "n02", "n01"]):
        lines.append(f"val_{k}.JPEG\t{wnid}\t0\t0\t60\t60\n")
        path = folder / "val" / "images" / f"val_{k}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 64), (10 * k, 0, 0)).save(path)
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))


def test_tiny_imagenet_is_read_from_its_own_folder(tmp_path):
    write_tiny_imagenet(tmp_path / "tiny-imagenet-200")
    data = datasets.load("tiny_imagenet", str(tmp_path))
    assert data.class_names == ("n02", "goldfish")
    assert data.image_shape == (64, 64, 3)
    assert np.bincount(data.train[1]).tolist() == [9, 9]
    assert np.bincount(data.validation[1]).tolist() == [1, 1]
    for images, labels in (data.train, data.validation):
        brightness = images.mean(axis=(1, 2, 3))
        np.testing.assert_allclose(brightness, 100 * labels, atol=3)
    assert data.test[1].tolist() == [1, 0, 1]
    np.testing.assert_allclose(data.test[0][:, 0, 0, 0], [0, 10, 20], atol=3)
    inside = datasets.load(
        "tiny_imagenet", str(tmp_path / "tiny-imagenet-200"), resize=20
    )
    assert inside.image_shape == (20, 20, 3)


def test_incomplete_tiny_imagenet_is_refused(tmp_path):
    def load():
        datasets.load("tiny_imagenet", str(tmp_path))

    with pytest.raises(UserError, match="needs its folder tiny-imagenet-200"):
        load()
    with pytest.raises(UserError, match="no folder is given"):
        datasets.load("tiny_imagenet")
    folder = tmp_path / "tiny-imagenet-200"
    write_tiny_imagenet(folder)
    annotations = folder / "val" / "val_annotations.txt"
    annotations.write_text("val_0.JPEG\tn09\t0\t0\t60\t60\n")
    with pytest.raises(UserError, match="must begin with an image and a class"):
        load()
    annotations.unlink()
    with pytest.raises(UserError, match="no file .*val_annotations.txt"):
        load()
    write_image(folder / "train" / "n01" / "images" / "x.png", size=(5, 5))
    with pytest.raises(UserError, match="x.png is 5x5x3, not 64x64x3"):
        load()
    os.rename(folder / "train" / "n01", folder / "elsewhere")
    with pytest.raises(UserError, match="no folder .*n01"):
        load()


def photos(count, sizes):
    rng = np.random.default_rng(0)
    return [
        {
            "image": rng.integers(
                0, 256, (*sizes[k % len(sizes)], 3), dtype=np.uint8
            ),
            "label": k % 2,
        }
        for k in range(count)
    ]


def test_photos_of_different_sizes_are_resized_and_split(tmp_path):
    examples = photos(40, [(9, 12), (7, 7)])
    folder = tfds_folder(tmp_path, "cats_vs_dogs", train=examples)
    with pytest.raises(UserError, match="different sizes.*--resize"):
        datasets.load("cats_vs_dogs", folder)
    data = datasets.load("cats_vs_dogs", folder, resize=6)
    assert data.class_names == ("cat", "dog")
    assert data.image_shape == (6, 6, 3)
    # A tenth for testing, then a tenth of the rest for validation.
    assert np.bincount(data.test[1]).tolist() == [2, 2]
    assert np.bincount(data.validation[1]).tolist() == [2, 2]
    assert np.bincount(data.train[1]).tolist() == [16, 16]
    again = datasets.load("cats_vs_dogs", folder, resize=6)
    np.testing.assert_array_equal(data.test[0], again.test[0])


def test_imagenettes_validation_split_is_the_test_set(tmp_path):
    folder = tfds_folder(
        tmp_path,
        "imagenette/160px-v2",
        train=photos(20, [(8, 8)]),
        validation=photos(6, [(8, 8)]),
    )
    data = datasets.load("imagenette/160px-v2", folder)
    assert data.num_classes == 10
    assert len(data.train[1]) == 18 and len(data.validation[1]) == 2
    assert len(data.test[1]) == 6


def test_house_numbers_are_labelled_by_their_digits(tmp_path):
    examples = [
        {"image": np.full((32, 32, 3), k, np.uint8), "label": k}
        for k in range(10)
    ]
    folder = tfds_folder(
        tmp_path,
        "svhn_cropped",
        train=examples,
        test=examples[:3],
        extra=examples,
    )
    data = datasets.load("svhn_cropped", folder, validation=0.0)
    assert data.class_names == tuple("0123456789")
    for images, labels in (data.train, data.test):
        np.testing.assert_array_equal(images[:, 0, 0, 0], labels)
    assert len(data.test[1]) == 3 and len(data.train[1]) == 10


def test_what_is_made_of_mnist_is_loaded_by_name(tmp_path):
    images, labels = digits(30)
    examples = [
        {"image": image, "label": label}
        for image, label in zip(images, labels.astype(np.int64), strict=True)
    ]
    folder = tfds_folder(tmp_path, "mnist", train=examples, test=examples[:6])
    data = datasets.load("multimnist", folder, shift=6, partners=2)
    assert data.test[0].shape == (12, 36, 36, 1)
    assert len(data.validation[1]) == 3 and len(data.train[1]) == 27
    data = datasets.load("affine_mnist", folder, maps=2)
    assert data.test[0].shape == (12, 40, 40, 1)
    write_affnist(tmp_path / "test.mat", *data.test)
    assert len(datasets.load("affnist", folder).test[1]) == 12

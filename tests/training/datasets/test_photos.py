"""Photos in their original formats, and smallNORB, in small files made here."""

import os

import numpy as np
import pytest
from PIL import Image

from cli import UserError
from tests.prepared_data import tfds_folder
from tests.refusals import assert_user_error
from tests.tolerance import assert_close
from tests.training.datasets.test_datasets import write_image
from training import datasets


def write_plain(path, red, mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (64, 64), red).save(path)


def write_tiny_imagenet(folder):
    for label, wnid in enumerate(["n02", "n01"]):
        for k in range(10):
            path = folder / "train" / wnid / "images" / f"{wnid}_{k}.JPEG"
            grey = 100 * label
            write_plain(path, *((grey, "L") if k else ((grey, grey, grey),)))
    lines = []
    for k, wnid in enumerate(["n01", "n02", "n01"]):
        lines.append(f"val_{k}.JPEG\t{wnid}\t0\t0\t60\t60\n")
        write_plain(folder / "val" / "images" / f"val_{k}.JPEG", (10 * k, 0, 0))
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    (folder / "wnids.txt").write_text("n02\nn01\n")
    (folder / "words.txt").write_text("n01\tgoldfish, carp\nn03\tmoth\n")


def test_tiny_imagenet_is_read_from_its_own_folder(tmp_path):
    write_tiny_imagenet(tmp_path / "tiny-imagenet-200")
    data = datasets.load("tiny_imagenet", str(tmp_path))
    assert data.class_names == ("n02", "goldfish")
    assert data.image_shape == (64, 64, 3)
    assert np.bincount(data.train.labels).tolist() == [9, 9]
    assert np.bincount(data.validation.labels).tolist() == [1, 1]
    for images, labels in (data.train, data.validation):
        brightness = images.pixels.mean(axis=(1, 2, 3))
        np.testing.assert_allclose(brightness, 100 * labels, atol=3)
    assert data.test.labels.tolist() == [1, 0, 1]
    assert_close(data.test.images.pixels[:, 0, 0, 0], [0, 10, 20], atol=3)
    inside = datasets.load(
        "tiny_imagenet", str(tmp_path / "tiny-imagenet-200"), resize=20
    )
    assert inside.image_shape == (20, 20, 3)


def test_incomplete_tiny_imagenet_is_refused(tmp_path):
    def load():
        datasets.load("tiny_imagenet", str(tmp_path))

    assert_user_error("needs its folder tiny-imagenet-200", load)
    assert_user_error("no folder is given", datasets.load, "tiny_imagenet")
    folder = tmp_path / "tiny-imagenet-200"
    write_tiny_imagenet(folder)
    extra = folder / "train" / "n01" / "images" / "x.png"
    write_image(extra, size=(5, 5))
    assert_user_error("must have one size: .* 5x5x3", load)
    annotations = folder / "val" / "val_annotations.txt"
    annotations.write_text("val_0.JPEG\tn09\t0\t0\t60\t60\n")
    assert_user_error("not complete: n09 of .* has no folder", load)
    annotations.unlink()
    assert_user_error("not complete: .*val_annotations.txt", load)
    os.rename(folder / "train" / "n01", folder / "elsewhere")
    assert_user_error("not complete: .*n01", load)


def photos(count, *sizes):
    draw = np.random.default_rng(0)
    shapes = [(*sizes[k % len(sizes)], 3) for k in range(count)]
    return [
        {"image": draw.integers(0, 256, shape, np.uint8), "label": k % 2}
        for k, shape in enumerate(shapes)
    ]


def test_photos_of_different_sizes_are_resized_and_split(tmp_path):
    examples = photos(40, (9, 12), (7, 7))
    folder = tfds_folder(tmp_path, "cats_vs_dogs", train=examples)
    with pytest.raises(UserError, match="different sizes.*--resize"):
        datasets.load("cats_vs_dogs", folder)
    data = datasets.load("cats_vs_dogs", folder, resize=6)
    assert data.class_names == ("cat", "dog")
    assert data.image_shape == (6, 6, 3)
    # A tenth for testing, then a tenth of the rest for validation.
    assert np.bincount(data.test.labels).tolist() == [2, 2]
    assert np.bincount(data.validation.labels).tolist() == [2, 2]
    assert np.bincount(data.train.labels).tolist() == [16, 16]
    again = datasets.load("cats_vs_dogs", folder, resize=6).test.images[:]
    np.testing.assert_array_equal(data.test.images[:], again)


def test_imagenettes_validation_split_is_the_test_set(tmp_path):
    name = "imagenette/160px-v2"
    train, validation = photos(20, (8, 8)), photos(6, (8, 8))
    folder = tfds_folder(tmp_path, name, train=train, validation=validation)
    data = datasets.load(name, folder)
    assert data.num_classes == 10
    assert data.class_names[::9] == ("tench", "parachute")
    assert len(data.train.labels) == 18 and len(data.validation.labels) == 2
    assert len(data.test.labels) == 6


_AZIMUTHS = np.arange(0, 360, 20)
_ELEVATIONS = np.arange(30, 75, 5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An image pair for each class and viewpoint.

    The left view tells the azimuth, the right one the elevation.
    """

    examples = [
        {
            "image": np.full((96, 96, 1), azimuth, np.uint8),
            "image2": np.full((96, 96, 1), elevation, np.uint8),
            "label_category": category,
            "instance": 0,
            "label_elevation": elevation,
            "label_azimuth": azimuth,
            "label_lighting": 0,
        }
        for category, elevation, azimuth in np.ndindex(5, 9, 18)
    ]
    path = tmp_path_factory.mktemp("prepared")
    return tfds_folder(path, "smallnorb", train=examples, test=examples)


def viewpoints(part):
    """The degrees of azimuth and elevation that images show, and classes."""
    images, labels = part.images.pixels, part.labels
    assert (images == images[:, :1, :1]).all()
    azimuth, elevation = images[:, 0, 0].T
    return (
        set(_AZIMUTHS[azimuth].tolist()),
        set(_ELEVATIONS[elevation].tolist()),
        set(labels.tolist()),
    )


@pytest.mark.slow
def test_small_norb_is_split_by_viewpoint(folder):
    every = set(_AZIMUTHS.tolist()), set(_ELEVATIONS.tolist()), set(range(5))
    data = datasets.load("smallnorb", folder, validation=0.0)
    assert data.name == "smallnorb" and not data.others
    assert data.image_shape == (96, 96, 2) and data.num_classes == 5
    for part in (data.train, data.test):
        assert len(part.labels) == 5 * 9 * 18 and viewpoints(part) == every
    for k, name, trained in (
        (0, "smallnorb-azimuth", {300, 320, 340, 0, 20, 40}),
        (1, "smallnorb-elevation", {30, 35, 40}),
    ):
        data = datasets.load(name, folder, validation=0.0)
        assert data.name == name
        for part, seen in (
            (data.train, trained),
            (data.others["familiar"], trained),
            (data.test, every[k] - trained),
        ):
            wanted = [*every]
            wanted[k] = seen
            assert viewpoints(part) == tuple(wanted)
            assert len(part.labels) == np.prod([*map(len, wanted)])
    data = datasets.load(name, folder, resize=8, crop=6)
    assert viewpoints(data.validation)[1] == trained
    assert len(data.validation.labels) == 5 * 5  # a tenth of each class's 54
    assert len(data.train.labels) + 25 == len(data.others["familiar"].labels)
    assert data.train.images.shape[1:] == (8, 8, 2)
    assert data.others["familiar"].images.shape[1:] == (6, 6, 2)

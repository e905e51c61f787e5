"""Data sets of photos in their original formats, in small files made here."""

import os

import numpy as np
import pytest
from PIL import Image

from cli import UserError
from tests.prepared_data import tfds_folder
from tests.tolerance import assert_close
from tests.training.datasets.test_datasets import write_image
from training import datasets


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

    with pytest.raises(UserError, match="needs its folder tiny-imagenet-200"):
        load()
    with pytest.raises(UserError, match="no folder is given"):
        datasets.load("tiny_imagenet")
    folder = tmp_path / "tiny-imagenet-200"
    write_tiny_imagenet(folder)
    extra = folder / "train" / "n01" / "images" / "x.png"
    write_image(extra, size=(5, 5))
    with pytest.raises(UserError, match="must have one size: .* 5x5x3"):
        load()
    annotations = folder / "val" / "val_annotations.txt"
    annotations.write_text("val_0.JPEG\tn09\t0\t0\t60\t60\n")
    with pytest.raises(UserError, match="has the class n09, which is not"):
        load()
    annotations.unlink()
    with pytest.raises(UserError, match="not complete: .*val_annotations.txt"):
        load()
    os.rename(folder / "train" / "n01", folder / "elsewhere")
    with pytest.raises(UserError, match="not complete: .*n01"):
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
    assert np.bincount(data.test.labels).tolist() == [2, 2]
    assert np.bincount(data.validation.labels).tolist() == [2, 2]
    assert np.bincount(data.train.labels).tolist() == [16, 16]
    again = datasets.load("cats_vs_dogs", folder, resize=6)
    np.testing.assert_array_equal(
        data.test.images.pixels, again.test.images.pixels
    )


def test_imagenettes_validation_split_is_the_test_set(tmp_path):
    folder = tfds_folder(
        tmp_path,
        "imagenette/160px-v2",
        train=photos(20, [(8, 8)]),
        validation=photos(6, [(8, 8)]),
    )
    data = datasets.load("imagenette/160px-v2", folder)
    assert data.num_classes == 10
    assert data.class_names[::9] == ("tench", "parachute")
    assert len(data.train.labels) == 18 and len(data.validation.labels) == 2
    assert len(data.test.labels) == 6

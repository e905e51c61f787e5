"""smallNORB in small files made here, split by viewpoint."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from cli import UserError
from tests.prepared_data import tfds_folder
from training import datasets

_AZIMUTHS = np.arange(0, 360, 20)
_ELEVATIONS = np.arange(30, 75, 5)


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
    images, labels = part.images.pixels, part.labels
    assert (images == images[:, :1, :1]).all()
    azimuth, elevation = images[:, 0, 0].T
    return (
        set(_AZIMUTHS[azimuth].tolist()),
        set(_ELEVATIONS[elevation].tolist()),
        set(labels.tolist()),
    )


@pytest.mark.slow
@pytest.mark.parametrize("source", ["small_norb_files", "small_norb_prepared"])
def test_small_norb_is_split_by_viewpoint(source, request):
    folder = request.getfixturevalue(source)
    every = set(_AZIMUTHS.tolist()), set(_ELEVATIONS.tolist()), set(range(5))

    data = datasets.load("smallnorb", folder, validation=0.0)
    assert data.name == "smallnorb" and not data.others
    assert data.image_shape == (96, 96, 2) and data.num_classes == 5
    for part in (data.train, data.test):
        assert len(part.labels) == 5 * 9 * 18 and viewpoints(part) == every

    trained = {300, 320, 340, 0, 20, 40}
    data = datasets.load("smallnorb-azimuth", folder, validation=0.0)
    assert data.name == "smallnorb-azimuth"
    for part in (data.train, data.others["familiar"]):
        assert len(part.labels) == 5 * 9 * 6
        assert viewpoints(part) == (trained, *every[1:])
    assert len(data.test.labels) == 5 * 9 * 12
    assert viewpoints(data.test) == (every[0] - trained, *every[1:])

    trained = {30, 35, 40}
    data = datasets.load("smallnorb-elevation", folder, resize=8, crop=6)
    for part in (data.train, data.validation, data.others["familiar"]):
        assert viewpoints(part)[1:] == (trained, every[2])
    assert len(data.validation.labels) == 5 * 5  # a tenth of each class's 54
    assert len(data.train.labels) + 25 == len(data.others["familiar"].labels)
    assert len(data.test.labels) == 5 * 6 * 18
    assert viewpoints(data.test)[1] == every[1] - trained
    assert data.train.images.shape[1:] == (8, 8, 2)
    assert data.others["familiar"].images.shape[1:] == (6, 6, 2)


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

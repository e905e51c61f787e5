"""smallNORB of a few pixels made here, split by viewpoint."""

import numpy as np
import pytest

from tests.prepared_data import tfds_folder
from training import datasets

_AZIMUTHS = np.arange(0, 360, 20)
_ELEVATIONS = np.arange(30, 75, 5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An image pair for each class and viewpoint.

    The left view tells the azimuth, the right one the elevation.
    """

    def views(number):
        return np.full((96, 96, 1), number, np.uint8)

    examples = [
        {
            "image": views(azimuth),
            "image2": views(elevation),
            "label_category": category,
            "instance": 0,
            "label_elevation": elevation,
            "label_azimuth": azimuth,
            "label_lighting": 0,
        }
        for category in range(5)
        for elevation in range(9)
        for azimuth in range(18)
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

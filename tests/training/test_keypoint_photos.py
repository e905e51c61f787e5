"""Photos in one file, with keypoints and boxes to measure by."""

import io

import numpy as np
import pytest
from PIL import Image

from cli import UserError
from training.datasets import keypoint_photos, load


def write(path, **changed):
    """Writes four photos of 20 rows and 40 columns, half of them to train.

    Some arrays are `changed`, and left out where they are `None`.
    """
    coded = []
    for level in (0, 80, 160, 240):
        file = io.BytesIO()
        photo = np.full((20, 40, 3), level, np.uint8)
        Image.fromarray(photo).save(file, "JPEG")
        coded.append(file.getvalue())
    arrays = dict(
        jpeg=np.frombuffer(b"".join(coded), np.uint8),
        offsets=np.cumsum([0, *map(len, coded)]),
        labels=np.array([0, 1, 0, 1]),
        is_train=np.array([1, 1, 0, 0], np.uint8),
        size=np.tile([40, 20], (4, 1)),
        class_names=["a", "b"],
        part_names=["head", "tail"],
        keypoints=np.tile([[10, 5, 1], [0, 0, 0]], (4, 1, 1)),
        boxes=np.tile([8, 4, 20, 10], (4, 1)),
    )
    arrays |= changed
    np.savez(path, **{k: x for k, x in arrays.items() if x is not None})


def test_points_and_boxes_are_in_pixels_of_squares(tmp_path):
    write(tmp_path / "photos.npz")
    photos = keypoint_photos.load(tmp_path / "photos.npz", side=80)
    assert photos.images.shape == (4, 80, 80, 3)
    assert photos.images[:, 3, 3, 0].tolist() == [0, 80, 160, 240]
    # x is doubled and y is four times as large, from the edges of the photo.
    np.testing.assert_allclose(photos.points[0, 0], [19.5, 19.5])
    assert np.isnan(photos.points[:, 1]).all()
    assert photos.boxes[0].tolist() == [16, 16, 40, 40]


def test_the_command_reads_classes_and_the_split_and_nothing_else(tmp_path):
    write(tmp_path / "photos.npz")
    data = load(str(tmp_path / "photos.npz"), validation=0.0)
    assert data.class_names == ("a", "b")
    assert data.image_shape == (keypoint_photos.SIDE,) * 2 + (3,)
    assert (len(data.train.labels), len(data.test.labels)) == (2, 2)
    assert data.masks is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"size": None}, "lacks the arrays size"),
        ({"boxes": None}, "lacks the arrays boxes"),
        ({"is_train": np.ones(4)}, "is_train` is 1 for 4 of 4"),
        ({"is_train": np.ones(3)}, "as many is_train as labels, 4; it has 3"),
        ({"offsets": np.arange(4)}, "as many offsets, less one, as labels"),
        ({"offsets": np.zeros(5, int)}, "photo 0 is no JPEG"),
        ({"labels": np.array([0, 1, 0, 7])}, "in 0 to 1"),
        ({"keypoints": np.zeros((4, 2, 3))}, "no visible keypoint"),
    ],
)
def test_a_file_that_does_not_fit_gets_a_sentence(tmp_path, changed, said):
    write(tmp_path / "photos.npz", **changed)
    with pytest.raises(UserError, match=said):
        keypoint_photos.load(tmp_path / "photos.npz")


def test_the_command_says_what_photos_lack(tmp_path):
    write(tmp_path / "photos.npz", labels=None)
    with pytest.raises(UserError, match="has JPEG photos .* it lacks labels"):
        load(str(tmp_path / "photos.npz"))

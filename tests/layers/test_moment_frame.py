"""Images in the frame of what they show."""

import numpy as np
import pytest
from keras import ops

from tfcaps.layers import MomentFrame

# Rows and columns of the blobs of a figure, not symmetric.
BLOBS = np.array([[-4, -3], [-4, 2], [1, 0], [5, 4]], "float32")


def drawn(place, matrix):
    """Returns an image of the blobs, sent through an affine map."""
    pixels = np.moveaxis(np.indices((40, 36)), 0, -1) - np.array(place)
    there = pixels @ np.linalg.inv(matrix).T
    apart = np.square(there[..., None, :] - BLOBS).sum(axis=-1)
    image = np.exp(-apart / (2 * 1.5**2)).sum(axis=-1)
    return image[..., None].astype("float32")


def seen(place, matrix):
    frame = MomentFrame(24, 4.0)
    return ops.convert_to_numpy(frame(drawn(place, np.array(matrix))[None])[0])


@pytest.mark.parametrize(
    ("place", "matrix"),
    [
        ((20.0, 15.0), [[1, 0], [0, 1]]),
        ((18.5, 17.0), [[1.3, 0], [0, 1.3]]),
        ((18.5, 17.0), [[0.8, 0], [-0.3, 0.8]]),
    ],
    ids=["place", "size", "slant"],
)
def test_place_size_and_slant_are_undone(place, matrix):
    upright = seen((16.0, 20.0), [[1.0, 0.0], [0.0, 1.0]])
    assert upright.max() > 0.8
    np.testing.assert_allclose(seen(place, matrix), upright, atol=0.12)


def test_the_object_has_the_wanted_spread_in_the_middle():
    image = seen((12.0, 22.0), [[0.9, 0.0], [0.2, 1.2]])[..., 0]
    weights = image / image.sum()
    rows, columns = np.indices(image.shape) - 11.5
    for offsets in (rows, columns):
        assert abs(np.sum(weights * offsets)) < 0.1
    assert abs(np.sqrt(np.sum(weights * rows**2)) - 4.0) < 0.15
    assert abs(np.sum(weights * rows * columns)) < 0.3

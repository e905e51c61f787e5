"""Images stay as they were read until they are taken."""

import numpy as np
import pytest

from training.images import Images, Split

BYTES = np.arange(0, 256, 17, dtype=np.uint8).reshape(4, 2, 2, 1)


@pytest.mark.parametrize(
    "rows",
    [slice(None), slice(1, 3), np.array([3, 0]), np.eye(4, dtype=bool)[1]],
)
@pytest.mark.parametrize("kind", [np.uint8, np.float16, np.float32, np.float64])
def test_what_is_taken_is_float32_in_0_to_1(kind, rows):
    pixels = BYTES if kind == np.uint8 else (BYTES / 255).astype(kind)
    images = Images(pixels)
    taken = images[rows]
    assert taken.dtype == np.float32
    wanted = pixels[rows].astype(np.float32)
    if kind == np.uint8:
        wanted = wanted / np.float32(255)
    np.testing.assert_array_equal(taken, wanted)
    assert images.pixels is pixels and images.take(rows).pixels.dtype == kind


def test_labels_go_with_their_images():
    split = Split(Images(BYTES), np.arange(4)).take(np.array([2, 0]))
    np.testing.assert_array_equal(split.images.pixels, BYTES[[2, 0]])
    assert split.labels.tolist() == [2, 0] and len(split.images) == 2
    assert split.images.shape == (2, 2, 2, 1)


def test_other_numbers_are_no_pixels():
    with pytest.raises(TypeError, match="uint8, or floats.*int64"):
        Images(np.zeros((1, 2, 2, 1), np.int64))

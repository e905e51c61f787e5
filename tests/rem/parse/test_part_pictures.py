"""What the types of leaves lie on, on average."""

import dataclasses

import numpy as np
import pytest

from tests.networks import tiny_capsnet
from tests.tolerance import SUMS
from tfcaps import rem


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((6, 8, 8, 2)).astype("float32")


@pytest.fixture(scope="module")
def trees(images):
    return rem.trees(tiny_capsnet(), images[..., :1])


def by_loops(images, trees, window):
    half = window // 2
    seen = {}
    for n, i in zip(*np.nonzero(trees.in_tree), strict=True):
        row, column = np.rint(trees.places[n, i]).astype(int)
        for y in range(window):
            for x in range(window):
                at = (row + y - half, column + x - half)
                if 0 <= at[0] < 8 and 0 <= at[1] < 8:
                    key = (trees.types[i], y, x)
                    seen.setdefault(key, []).append(images[n][at])
    found = np.zeros((trees.num_types, window, window, images.shape[-1]))
    for key, pixels in seen.items():
        found[key] = np.mean(pixels, axis=0)
    return found


@pytest.mark.parametrize("window", [1, 5, 11])
def test_they_are_the_means_of_windows(images, trees, window):
    found = rem.part_pictures(images, trees, window)
    assert found.dtype == np.float32
    np.testing.assert_allclose(
        found, by_loops(images, trees, window), atol=SUMS
    )


def test_a_type_in_no_tree_is_not_known(images, trees):
    only = trees.in_tree & (trees.types == 0)
    found = rem.part_pictures(images, dataclasses.replace(trees, in_tree=only))
    assert np.isnan(found[1]).all() and np.isfinite(found[0]).all()


def test_mistakes_are_named(images, trees):
    with pytest.raises(ValueError, match="`window` must be odd"):
        rem.part_pictures(images, trees, 4)
    with pytest.raises(ValueError, match="one tree for each image"):
        rem.part_pictures(images[:2], trees)
    nowhere = dataclasses.replace(trees, places=np.full((6, 8, 2), np.nan))
    with pytest.raises(ValueError, match="have no places"):
        rem.part_pictures(images, nowhere)

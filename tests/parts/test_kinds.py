"""Which parts classes have, and which of them are of one kind."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tests.tolerance import assert_close
from tfcaps.parts import kinds
from training.datasets import figures


def found(rng, design, count=400, most=16, repeated=False):
    """Returns parts that are found from places a pixel off, and true ones."""
    (images, labels), masks = figures.draw(count, 3, design)
    middles = np.nanmean(masks.parts, axis=1)
    places = middles + rng.uniform(-1, 1, middles.shape)
    parts = kinds.find(
        images / 255.0, labels, places, 11, most=most, repeated=repeated
    )
    slots, better = parts.slots, parts.places
    assert parts.clear
    true = []
    for j, shift, _ in zip(*slots, strict=True):
        rows = np.flatnonzero((labels == j) & parts.fits)
        apart = masks.parts[rows] - (better[rows] + shift)[:, None]
        apart = np.linalg.norm(apart, axis=-1)
        nearest = np.nanargmin(apart, axis=1)
        assert np.median(np.nanmin(apart, axis=1)) < 2.2
        each = masks.kinds[rows][np.arange(len(rows)), nearest]
        assert len({*each.tolist()}) == 1  # of one class one part each
        true.append(each[0])
    return slots, np.array(true)


@pytest.mark.parametrize(
    ("design", "number"),
    [
        ("figures", 5),
        ("figures_of_four", 4),
        # A class has a kind twice, and slots are empty.
        pytest.param("figures_repeated", 4, marks=pytest.mark.slow),
    ],
)
def test_parts_are_found_and_those_of_one_kind(rng, design, number):
    repeated = design == "figures_repeated"
    slots, true = found(rng, design, repeated=repeated)
    assert_array_equal(np.bincount(slots.classes), [number] * 10)
    # Kinds and true ones tell each other.
    pairs = {*zip(slots.kinds.tolist(), true.tolist(), strict=True)}
    assert len(pairs) == len({*true}) == slots.kinds.max() + 1


def test_there_are_no_more_kinds_than_types(rng):
    slots, _ = found(rng, "figures", count=400, most=3, repeated=True)
    assert slots.kinds.max() + 1 == 3


def test_images_that_show_nothing_have_no_parts():
    images = np.ones((8, 12, 12, 1))
    parts = kinds.find(images, np.arange(8) % 2, np.full((8, 2), 6.0), 5)
    assert not len(parts.slots.kinds) and np.isfinite(parts.places).all()


def test_windows_are_read_between_pixels(rng):
    down, right = np.indices((9, 9))
    images = np.stack([2.0 * down + right, down - 3.0 * right])[..., None]
    around = kinds.windows(images, [(3.5, 4.25), (4.0, 5.5)], 3)[..., 0]
    away = np.arange(-1, 2)
    for seen, (by, then), (row, column) in zip(
        around, [(2, 1), (1, -3)], [(3.5, 4.25), (4.0, 5.5)], strict=True
    ):
        wanted = by * (row + away)[:, None] + then * (column + away)
        assert_close(seen, wanted)
    beyond = kinds.windows(np.ones((1, 5, 5, 2)), [(0.0, 99.0)], 5)
    assert beyond.shape == (1, 5, 5, 2) and not beyond.any()
    edge = kinds.windows(np.ones((1, 5, 5, 1)), [(0.0, 4.0)], 3)[0, ..., 0]
    assert_array_equal(edge, [[0, 0, 0], [1, 1, 0], [1, 1, 0]])

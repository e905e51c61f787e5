"""ReconstructionLoss: a weight of one pixel."""

import numpy as np
import pytest

from tests import reference
from tests.tolerance import SUMS, assert_close
from tfcaps.losses import ReconstructionLoss


@pytest.mark.parametrize("shape", [(4, 5, 2), (10,), (3, 2)], ids=str)
def test_loss_equals_the_loops(shape, rng):
    images, others = rng.random(size=(2, 6, *shape)).astype("float32")
    losses = ReconstructionLoss(0.3, reduction=None)(images, others)
    expected = reference.reconstruction_loss(images, others, 0.3)
    assert_close(losses, expected, atol=1e-5)
    mean = ReconstructionLoss(0.3)(images, others)
    assert float(mean) == pytest.approx(np.mean(expected), abs=1e-5)


def test_published_weight_is_that_of_a_mean_over_pixels(rng):
    images, others = rng.random(size=(2, 5, 28, 28, 1)).astype("float32")
    expected = 0.392 * np.mean((images - others) ** 2)
    loss = ReconstructionLoss()(images, others)
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_shapes_may_differ_and_integers_are_cast(rng):
    images = rng.integers(2, size=(3, 4, 5, 2)).astype("uint8")
    others = rng.random(size=(3, 4, 5, 2)).astype("float32")
    loss = ReconstructionLoss()(images, others)
    flat = ReconstructionLoss()(images, others.reshape(3, 40))
    assert float(flat) == pytest.approx(float(loss), abs=1e-7)
    expected = reference.reconstruction_loss(images, others, 0.0005)
    assert float(loss) == pytest.approx(np.mean(expected), abs=SUMS)

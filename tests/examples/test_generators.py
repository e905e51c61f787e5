"""Generators of figures differ, and later ones have kinds of their own."""

import numpy as np
import pytest

from examples import generators
from training.datasets import figures


@pytest.mark.parametrize("number", [0, 3, 7])
def test_a_generator_draws_parts_that_stand_apart(number):
    design = generators.design(number)
    assert design == generators.design(number) != generators.design(number + 1)
    assert len({*design.figures}) == len(design.figures) == 8
    tuned = {
        k for n in range(generators.TUNED) for k in generators.design(n)[0]
    }
    assert tuned.isdisjoint(design.kinds) == (number >= generators.TUNED)
    (images, labels), masks = figures.draw(32, 1, design)
    assert images.shape == (32, design.side, design.side, 1)
    np.testing.assert_array_equal(np.bincount(labels), 8 * [4])
    covered = masks.parts.any(axis=1)[..., None]
    inside, outside = images[covered].mean(), images[~covered].mean()
    assert (inside < outside) == (design.ground == "bright")
    middles = np.array(design.slots)
    apart = np.linalg.norm(middles[:, None] - middles, axis=-1)
    np.fill_diagonal(apart, np.inf)
    assert apart.min() >= 7.4 * design.scale

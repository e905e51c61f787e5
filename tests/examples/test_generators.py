"""Generators of figures differ, and later ones have kinds of their own."""

import numpy as np
import pytest

from examples import generators
from training.datasets import figures

_FULL = "bar disc square plus tee stripe dot cross".split()


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
    full = [k for k, kind in enumerate(design.kinds) if kind in _FULL]
    filled = np.isin(masks.kinds, full)
    rows, columns = np.rint(masks.parts[filled]).astype(int).T
    inside = images[np.nonzero(filled)[0], rows, columns].mean()
    assert (inside < images.mean()) == (design.ground == "bright")
    middles = np.array(design.slots)
    apart = np.linalg.norm(middles[:, None] - middles, axis=-1)
    np.fill_diagonal(apart, np.inf)
    assert apart.min() >= 7.4 * design.scale

"""Where the parts of classes are, read from weights."""

import numpy as np

from tests.networks import tiny_capsnet
from tfcaps import models, rem


def test_they_are_the_shifts_of_the_types_that_a_class_has():
    network = models.constellation_capsnet((16, 16, 1), 3, part_types=2)
    layer = network.get_layer("class_caps")
    shifts = np.arange(12.0).reshape(2, 3, 2)
    layer.blueprint.assign(shifts / layer.side)
    layer.slots.assign([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    found = rem.blueprints(network)
    np.testing.assert_allclose(found[0], shifts[:, 0], rtol=1e-6)
    np.testing.assert_allclose(found[1, 1], shifts[1, 1], rtol=1e-6)
    assert np.isnan(found[1, 0]).all() and np.isnan(found[2, 1]).all()


def test_other_networks_have_none():
    assert rem.blueprints(tiny_capsnet()) is None

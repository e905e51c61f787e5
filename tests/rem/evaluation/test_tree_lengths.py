"""Lengths without trees, and with trees alone."""

import numpy as np
import pytest

from tests.networks import draw_weights, tiny_capsnet
from tests.tolerance import SUMS
from tfcaps import rem
from tfcaps.layers import Length


def test_they_are_those_of_children_at_zero():
    model = draw_weights(tiny_capsnet(), 0, class_caps=9.0)
    images = np.random.default_rng(0).random((5, 8, 8, 1)).astype("float32")
    trees = rem.trees(model, images)
    found = rem.tree_lengths(model, images, trees, batch_size=2)
    assert found.shape == (5, 3, 3)
    np.testing.assert_array_equal(found[:, 0], trees.lengths)
    shown = rem.capsule_outputs(model, couplings=False)(images)
    np.testing.assert_allclose(found[:, 0], shown["lengths"], atol=SUMS)
    primary = model.get_layer("primary_caps")
    below = np.asarray(primary(model.get_layer("conv")(images)))
    children = below.reshape(5, 8, -1)
    for k, kept in ((1, ~trees.in_tree), (2, trees.in_tree)):
        poses = (children * kept[..., None]).reshape(below.shape)
        lengths = Length()(model.get_layer("class_caps")(poses))
        np.testing.assert_allclose(found[:, k], lengths, atol=1e-5)
    with pytest.raises(ValueError, match="5 trees"):
        rem.tree_lengths(model, images[:2], trees)

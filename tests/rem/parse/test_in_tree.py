"""The rule that says which children are in a tree."""

import keras
import numpy as np
import pytest

from tests.networks import draw_weights, outputs_of, tiny_capsnet
from tfcaps import rem, routing
from tfcaps.rem.parse.in_tree import TREE_MARGIN, in_tree, tree_threshold

IMAGES = np.random.default_rng(3).random((20, 8, 8, 1), dtype=np.float32)
LABELS = np.arange(20) % 3


@keras.saving.register_keras_serializable(package="tests")
class HalfRouting(routing.DynamicRouting):
    """Dynamic routing whose trees ask for more than half of a child."""

    def tree_threshold(self, parents):
        return 0.5


@pytest.mark.parametrize("parents", [3, 10, 1152])
def test_uniform_couplings_are_in_no_tree_whatever_their_rounding(parents):
    threshold = tree_threshold(routing.DynamicRouting(), parents)
    uniform = np.float32(1 / parents)
    rounded = uniform * np.float32(1.0 + 0.5 * TREE_MARGIN)
    assert not in_tree(np.array([uniform, rounded, 0.0]), threshold).any()
    assert in_tree(uniform * np.float32(1.0 + 3.0 * TREE_MARGIN), threshold)


def test_a_threshold_is_rounded_where_the_routing_rounds():
    for parents, wanted in ((16, 0.1), (10, 0.1), (7, 1 / 7), (3, 1 / 3)):
        eleven = routing.DynamicRouting(levels=11)
        assert tree_threshold(eleven, parents) == pytest.approx(wanted)
    assert tree_threshold(HalfRouting(levels=4), 10) == 0.5  # above 1/3
    assert tree_threshold(HalfRouting(), 10) == 0.5


def test_every_part_of_rem_asks_the_routing():
    model = draw_weights(tiny_capsnet(routing=HalfRouting()), 4, class_caps=3.0)
    couplings = outputs_of(rem.capsule_outputs(model), IMAGES)
    classes = couplings["lengths"].argmax(axis=-1)
    towards = couplings["couplings"][np.arange(20), :, classes]
    share = np.mean(towards > 0.5)
    assert 0.0 < share < np.mean(towards > 1 / 3) - 0.05
    report = rem.evaluate(model, (IMAGES, LABELS), faithfulness=True)
    assert report.tree_threshold == 0.5
    assert report.strong_share == report.faithfulness.size == share
    trees = rem.trees(model, IMAGES)
    np.testing.assert_array_equal(trees.in_tree, towards > 0.5)
    edges = [len(trees[k : k + 1].parse_tree().edges) for k in range(20)]
    assert edges == trees.leaves.tolist()

"""Parse trees of fully connected capsules: the rule, and those of models."""

import dataclasses

import keras
import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, images_of, sharpened
from tests.tolerance import assert_all_close
from tfcaps import rem
from tfcaps.rem import Edge
from tfcaps.rem.parse.trees import parse_tree

# Three leaves, two hidden capsules, two classes.
BELOW = [[0.9, 0.1], [0.5, 0.5], [0.4, 0.6]]
ABOVE = [[0.8, 0.2], [0.3, 0.7]]
ACTIVATIONS = [[0.1, 0.2, 0.3], [0.4, 0.5], [0.6, 0.7]]


@pytest.fixture(scope="module")
def deep():
    """Four leaves, three hidden capsules, three classes."""
    keras.utils.set_random_seed(0)
    model = SMALL_NETWORKS["multilayer_capsnet"]()
    return sharpened(model, "hidden_caps1", "class_caps")


def layer_by_layer(model, images):
    """Returns activations and couplings of the deep model, by its layers."""
    inside = keras.Model(model.input, model.get_layer("primary_caps").output)
    poses = inside(images)
    activations, couplings = [np.linalg.norm(poses, axis=-1)], []
    activations[0] = activations[0].reshape(len(images), -1)
    for name in ("hidden_caps1", "class_caps"):
        poses, between = model.get_layer(name)(poses, return_couplings=True)
        activations.append(np.linalg.norm(poses, axis=-1))
        couplings.append(np.asarray(between))
    return activations, couplings


def assert_same(tree, expected):
    assert [e[:3] for e in tree.edges] == [e[:3] for e in expected.edges]
    np.testing.assert_allclose(
        [e.coupling for e in tree.edges],
        [e.coupling for e in expected.edges],
        atol=1e-5,
    )
    assert tree.roots == expected.roots
    assert_all_close(tree.activations, expected.activations, atol=1e-5)


# Nothing below belongs to the second hidden capsule.
ONE = [[0.9, 0.1], [0.6, 0.4], [0.8, 0.2]]
BOTH = [[0.45, 0.45, 0.1], [0.1, 0.2, 0.7]]
# 0.4 exceeds a third, not a half.
WIDE = [[[0.4, 0.3, 0.3]], [[0.6, 0.4], [0.5, 0.5], [0.6, 0.4]]]
FOUR = [(0, 0, 0), (0, 2, 1), (1, 0, 0), (1, 1, 1)]
EVERY = [(0, 0, j) for j in range(3)]
EVERY += [(1, i, j) for i in range(3) for j in range(2)]


@pytest.mark.parametrize(
    ("couplings", "roots", "threshold", "edges"),
    [
        ([BELOW, ABOVE], [0], None, [(0, 0, 0), (1, 0, 0)]),
        ([BELOW, ABOVE], [1], None, [(0, 2, 1), (1, 1, 1)]),
        ([BELOW, ABOVE], [1, 0], None, FOUR),
        ([ONE, ABOVE], [1], None, []),
        ([ONE, ABOVE], [0], None, [(0, i, 0) for i in range(3)] + [(1, 0, 0)]),
        ([BOTH], [0, 1], None, [(0, 0, 0), (0, 0, 1)]),
        (WIDE, [0, 1], None, [(0, 0, 0), (1, 0, 0)]),
        (WIDE, [0, 1], 0.29, EVERY),
        (WIDE, [0], 0.45, []),
    ],
)
def test_classes_are_traced_back_to_leaves(couplings, roots, threshold, edges):
    sizes = [len(c) for c in couplings] + [len(couplings[-1][0])]
    activations = [np.ones(size) for size in sizes]
    tree = parse_tree(activations, couplings, roots, threshold=threshold)
    wanted = [Edge(k, i, j, couplings[k][i][j]) for k, i, j in edges]
    assert tree.edges == tuple(wanted)
    assert tree.roots == tuple(sorted(roots))
    for layer, reached in enumerate(tree.reached[:-1]):
        inside = {child for k, child, _ in edges if k == layer}
        assert {*np.flatnonzero(reached)} == inside
    assert {*np.flatnonzero(tree.reached[-1])} == {*roots}


def test_shapes_that_do_not_fit_are_errors():
    with pytest.raises(ValueError, match=r"couplings of shapes \[\(2, 2\)\]"):
        parse_tree([[1, 1, 1], [1, 1]], [ABOVE], [0])
    with pytest.raises(ValueError, match="couplings of shapes"):
        parse_tree([[1, 1]], [], [0])
    for roots in ([], [2], [-1]):
        with pytest.raises(ValueError, match="classes from 0 to 1"):
            parse_tree(ACTIVATIONS, [BELOW, ABOVE], roots)


def test_trees_of_several_images_are_those_of_their_means(deep):
    images = images_of(deep, 9)
    activations, couplings = layer_by_layer(deep, images)
    trees = rem.trees(deep, images, batch_size=4)
    own = np.argmax(deep(images), axis=-1) == trees.predicted[0]
    for some, roots in ((own, None), (own, [2]), (own | True, range(3))):
        expected = parse_tree(
            [a[some].mean(axis=0) for a in activations],
            [c[some].mean(axis=0) for c in couplings],
            [trees.predicted[0]] if roots is None else roots,
        )
        assert_same(trees[some].parse_tree(roots), expected)
        assert expected.edges


def test_uniform_couplings_that_are_rounded_up_are_no_edges():
    model = SMALL_NETWORKS["multilayer_capsnet"]()
    for name in ("hidden_caps1", "class_caps"):
        weight = model.get_layer(name).transformation
        weight.assign(0.01 * weight)
    images = images_of(model, 3)
    # A third becomes a half, which is more than a third.
    trees = rem.trees(model, images, 3)
    assert not trees.parse_tree(range(3)).edges
    for thresholds, found in (((0.4, 0.6), set()), ((0.4, 0.4), {0.5})):
        lower = dataclasses.replace(trees, thresholds=thresholds)
        edges = lower.parse_tree(range(3)).edges
        assert {edge.coupling for edge in edges} == found


def test_trees_without_couplings_or_images_are_no_parse_trees(deep):
    images = images_of(deep, 2)
    for trees in (
        rem.trees(deep, images, couplings=False),
        rem.trees(deep, images)[:0],
    ):
        with pytest.raises(ValueError, match="at least one image, and the cou"):
            trees.parse_tree()

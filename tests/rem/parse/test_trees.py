"""The trees of images as arrays, what leaves lie on, and parse trees."""

import dataclasses

import keras
import numpy as np
import pytest

from tests.networks import (
    SMALL_NETWORKS,
    draw_weights,
    images_of,
    outputs_of,
    sharpened,
    tiny_capsnet,
)
from tests.tolerance import SUMS, assert_all_close
from tfcaps import rem
from tfcaps.layers import ClassCaps, Length
from tfcaps.ops import quantize
from tfcaps.rem.parse.parse_tree import traced_back

IMAGES = np.random.default_rng(3).random((13, 8, 8, 1), dtype=np.float32)


@pytest.fixture(scope="module")
def model():
    return draw_weights(tiny_capsnet(), 4, class_caps=3.0)


@pytest.fixture(scope="module")
def found(model):
    return rem.trees(model, IMAGES, batch_size=5)


def test_trees_are_what_the_couplings_say(model, found):
    shown = outputs_of(rem.capsule_outputs(model), IMAGES)
    np.testing.assert_allclose(found.lengths, shown["lengths"], atol=SUMS)
    np.testing.assert_allclose(found.couplings, shown["couplings"], atol=SUMS)
    classes = shown["lengths"].argmax(axis=-1)
    np.testing.assert_array_equal(found.predicted, classes)
    towards = shown["couplings"][np.arange(13), :, classes]
    np.testing.assert_allclose(found.towards, towards, atol=SUMS)
    np.testing.assert_array_equal(found.in_tree, towards > 1 / 3)
    np.testing.assert_array_equal(found.codes, quantize(towards, 11))
    assert found.codes.dtype == np.uint8
    assert found.couplings.dtype == found.towards.dtype == np.float32
    assert len(found) == 13


def test_types_and_places_are_those_of_the_grid(model, found):
    fields = rem.receptive_fields(model)
    assert fields.grid == (2, 2, 2)
    assert found.types.tolist() == [0, 1] * 4 and found.num_types == 2
    assert found.has_places and found.places.shape == (13, 8, 2)
    np.testing.assert_array_equal(found.places[7], fields.child_centres)
    assert found.places.strides[0] == 0  # shared by all images
    by_place = found.activations.reshape(13, *fields.grid)
    most = by_place.max(axis=(1, 2, 3), keepdims=True)
    expected = np.where(
        (by_place > 0.1 * most).any(axis=-1), by_place.argmax(axis=-1), -1
    )
    np.testing.assert_array_equal(found.type_map, expected)
    per_type = [found.in_tree[:, t::2].any(axis=1) for t in range(2)]
    np.testing.assert_array_equal(found.slots, np.stack(per_type, axis=1))
    np.testing.assert_array_equal(found.leaves, found.in_tree.sum(axis=1))
    assert 0 < found.slots.mean() < 1


def test_some_of_the_images_can_be_taken(found):
    some = found[[2, 5]]
    assert len(some) == 2 and some.types is found.types
    strength = (found.towards * found.activations)[5]
    children = sorted(found.in_tree[5].nonzero()[0], key=lambda i: -strength[i])
    assert some.strongest(1).tolist() == children
    active = np.array([[1.0, 0.11, *[0.1] * 6], [0.0] * 8])
    some = dataclasses.replace(some, activations=active)
    expected = [[True, True, *[False] * 6], [False] * 8]
    np.testing.assert_array_equal(some.active, expected)
    np.testing.assert_array_equal(some.couplings, found.couplings[[2, 5]])
    np.testing.assert_array_equal(found[1:].leaves, found.leaves[1:])


def test_a_routing_that_rounds_has_the_rounded_threshold(model):
    found = rem.trees(rem.quantize_couplings(model, 4), IMAGES)
    other = rem.trees(model, IMAGES, 4)
    np.testing.assert_array_equal(other.couplings, found.couplings)
    np.testing.assert_array_equal(other.codes, np.round(3 * found.towards))
    assert other.codes.max() == 3 and found.codes.max() == 3
    rounded = np.round(found.couplings * 3) / 3
    np.testing.assert_allclose(found.couplings, rounded, atol=SUMS)
    np.testing.assert_array_equal(found.in_tree, found.towards > 0.5)


def test_children_in_a_row_have_types_of_their_own_and_no_place():
    images = keras.Input((8, 4), name="images")
    model = keras.Model(images, Length()(ClassCaps(3, 4)(images)))
    found = rem.trees(model, IMAGES[:, :, :4, 0])
    assert found.types.tolist() == list(range(8))
    assert np.isnan(found.places).all() and not found.has_places
    np.testing.assert_array_equal(found.slots, found.in_tree)


@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_layer_may_say_where_its_children_are(batch_size):
    model = SMALL_NETWORKS["constellation_capsnet"]()
    images = images_of(model, 6)
    found = rem.trees(model, images, batch_size=batch_size)
    parts = keras.Model(model.input, model.get_layer("part_caps").output)
    wanted = np.reshape(parts(images)[0], (6, -1, 2))
    np.testing.assert_allclose(found.places, wanted, atol=1e-5)
    assert np.ptp(found.places, axis=0).max() > 0


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((6, 8, 8, 2)).astype("float32")


@pytest.fixture(scope="module")
def trees(images):
    return rem.trees(tiny_capsnet(), images[..., :1])


def test_they_are_windows_around_leaves(images, trees):
    found = rem.part_pictures(images, trees)
    assert found.dtype == np.float32
    assert found.shape == (2, 4, 3, 3, 2)  # a third of the side
    edges = [(0, 0), (3, 3), (3, 3), (0, 0)]
    padded = np.pad(images, edges, constant_values=np.nan)
    for kind, windows in enumerate(found):
        leaves = np.argwhere(trees.in_tree & (trees.types == kind))
        own = [
            padded[n, y : y + 3, x : x + 3]
            for n, i in leaves
            for y, x in [np.rint(trees.places[n, i]).astype(int) + 2]
        ]
        chosen = [
            next(k for k, w in enumerate(own) if np.array_equal(w, one, True))
            for one in windows
        ]
        # Of each image one, before an image gives two.
        assert len({leaves[k][0] for k in chosen}) == 4
    again = rem.part_pictures(images, trees)
    np.testing.assert_array_equal(found, again)


def test_a_type_in_no_tree_is_not_known(images, trees):
    only = trees.in_tree & (trees.types == 0)
    found = rem.part_pictures(images, dataclasses.replace(trees, in_tree=only))
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[0, :, 1, 1]).all()


def test_mistakes_are_named(images, trees):
    with pytest.raises(ValueError, match="one tree for each image"):
        rem.part_pictures(images[:2], trees)
    nowhere = dataclasses.replace(trees, places=np.full((6, 8, 2), np.nan))
    with pytest.raises(ValueError, match="have no places"):
        rem.part_pictures(images, nowhere)


# Three leaves, two hidden capsules, two classes.
BELOW = [[0.9, 0.1], [0.5, 0.5], [0.4, 0.6]]
ABOVE = [[0.8, 0.2], [0.3, 0.7]]


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
    assert_all_close(tree.links, expected.links, atol=1e-5)
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
    least = [threshold or 1 / len(c[0]) for c in couplings]
    tree = traced_back(activations, couplings, roots, least)
    assert tree.edges == [(*e, couplings[e[0]][e[1]][e[2]]) for e in edges]
    assert tree.roots == tuple(sorted(roots))
    for layer, reached in enumerate(tree.reached[:-1]):
        inside = {child for k, child, _ in edges if k == layer}
        assert {*np.flatnonzero(reached)} == inside
    assert {*np.flatnonzero(tree.reached[-1])} == {*roots}


@pytest.mark.parametrize("roots", [[], [3], [-1]])
def test_roots_that_are_no_classes_are_errors(found, roots):
    with pytest.raises(ValueError, match="classes from 0 to 2"):
        found.parse_tree(roots)


def test_trees_of_several_images_are_those_of_their_means(deep):
    images = images_of(deep, 9)
    activations, couplings = layer_by_layer(deep, images)
    trees = rem.trees(deep, images, batch_size=4)
    own = np.argmax(deep(images), axis=-1) == trees.predicted[0]
    for some, roots in ((own, None), (own, [2]), (own | True, range(3))):
        expected = traced_back(
            [a[some].mean(axis=0) for a in activations],
            [c[some].mean(axis=0) for c in couplings],
            [trees.predicted[0]] if roots is None else roots,
            [1 / 3, 1 / 3],
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
        assert {edge[3] for edge in edges} == found


def test_trees_without_couplings_or_images_are_no_parse_trees(deep):
    images = images_of(deep, 2)
    for trees in (
        rem.trees(deep, images, couplings=False),
        rem.trees(deep, images)[:0],
    ):
        with pytest.raises(ValueError, match="at least one image, and the cou"):
            trees.parse_tree()

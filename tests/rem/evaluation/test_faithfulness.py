"""Measures of faithfulness against loops over images and sets of children."""

import itertools

import keras
import numpy as np
import pytest

from tests import reference
from tests.networks import draw_weights, tiny_capsnet
from tests.tolerance import SUMS
from tfcaps import rem

IMAGES = np.random.default_rng(3).random((20, 8, 8, 1), dtype=np.float32)
LABELS = np.arange(20) % 3
# As many draws as make random measures those of all sets, but for chance.
DRAWS = 60


@pytest.fixture(scope="module")
def model():
    return draw_weights(tiny_capsnet(), 4, class_caps=3.0)


@pytest.fixture(scope="module")
def report(model):
    return rem.faithfulness(model, (IMAGES, LABELS), draws=DRAWS)


class Loop:
    """Dynamic routing in NumPy, without some children of one image."""

    def __init__(self, model):
        layer = model.get_layer("class_caps")
        inside = model.get_layer("primary_caps").output
        self.inside = keras.Model(model.input, inside)
        self.transformation = np.asarray(layer.transformation, "float64")
        self.bias = np.asarray(layer.bias, "float64")
        self.children = self.of(IMAGES)
        self.mean = self.children.mean(axis=0)
        self.lengths, couplings = self.route(self.children)
        self.classes = self.lengths.argmax(axis=-1)
        self.couplings = couplings[np.arange(20), :, self.classes]
        self.trees = self.couplings > 1 / 3 + 1e-6
        self.before = self.lengths.max(axis=-1)

    def of(self, images):
        poses = np.asarray(self.inside(images), "float64")
        return poses.reshape(len(images), -1, poses.shape[-1])

    def route(self, children):
        """Returns lengths `[b, j]` and couplings `[b, i, j]`."""
        votes = np.einsum("bik,ijkd->bijd", children, self.transformation)
        return reference.route(3, votes, bias=self.bias)[1:]

    def without(self, n, silenced, mean=False):
        other = self.mean if mean else np.zeros_like(self.mean)
        children = np.where(silenced[:, None], other, self.children[n])
        return self.route(children[np.newaxis])[0][0]

    def kept(self, n, silenced, mean):
        lengths = self.without(n, silenced, mean)
        return lengths.argmax() == self.classes[n]

    def lost(self, n, silenced, mean):
        lengths = self.without(n, silenced, mean)
        now = lengths[self.classes[n]]
        return now < lengths.max() or now < 0.5 * self.before[n]


@pytest.fixture(scope="module")
def loop(model):
    return Loop(model)


def test_necessity_and_sufficiency_are_those_of_a_loop(report, loop):
    trees = loop.trees
    for found, measure, silenced in (
        (report.sufficiency, loop.kept, ~trees),
        (report.necessity, loop.lost, trees),
        (report.same_without_tree, loop.kept, trees),
    ):
        for name, is_mean in (("zero", False), ("mean", True)):
            each = [measure(n, silenced[n], is_mean) for n in range(20)]
            assert found[name] == pytest.approx(np.mean(each))
    assert len(np.unique(loop.classes)) == 3  # of all kinds of images
    assert len(np.unique(trees.sum(axis=-1))) >= 3
    assert report.size == pytest.approx(np.mean(trees))
    assert report.empty_trees == 0.0
    assert 0.1 < report.necessity["mean"] < 0.9


def sets_of(members, size):
    """Returns all sets of so many children."""
    chosen = itertools.combinations(members, size)
    return [np.isin(np.arange(8), children) for children in chosen]


def test_controls_are_those_of_all_sets(report, loop):
    random, active, longest = [], [], []
    for n, tree in enumerate(loop.trees):
        size, lengths = tree.sum(), np.linalg.norm(loop.children[n], axis=-1)
        others = np.flatnonzero((lengths > 0.1 * lengths.max()) & ~tree)
        random.append(sets_of(range(8), size))
        active.append(sets_of(others, min(size, len(others))))
        longest.append(sets_of(np.argsort(-lengths)[:size], size))
    # 20 images with 60 draws; the deviation of a share is at most 0.5.
    chance = 3 * 0.5 / 1200**0.5
    for found, measure, sets, is_kept, atol in (
        (report.sufficiency_random, loop.kept, random, True, chance),
        (report.necessity_random, loop.lost, random, False, chance),
        (report.necessity_active, loop.lost, active, False, chance),
        (report.sufficiency_longest, loop.kept, longest, True, 1e-9),
    ):
        for name, is_mean in (("zero", False), ("mean", True)):
            each = [
                np.mean([measure(n, s ^ is_kept, is_mean) for s in sets[n]])
                for n in range(20)
            ]
            assert found[name] == pytest.approx(np.mean(each), abs=atol)
    assert 0.0 < report.necessity_active["mean"] < report.necessity["mean"]
    assert report.sufficiency_longest != report.sufficiency


def test_class_share_is_that_of_a_loop(report, loop):
    within = total = 0.0
    for i in range(8):
        values = loop.couplings[:, i]
        total += ((values - values.mean()) ** 2).sum()
        for j in range(3):
            own = values[loop.classes == j]
            within += ((own - own.mean()) ** 2).sum()
    assert report.class_share == pytest.approx(1 - within / total, abs=1e-4)


def test_stability_is_that_of_shifted_images(report, loop):
    found = []
    for axis, step in itertools.product((1, 2), (-1, 1)):
        shifted = np.roll(IMAGES, step, axis)
        edge = {1: np.s_[:, [0, -1]], 2: np.s_[:, :, [0, -1]]}[axis]
        for border in (0, 1):  # the one that came in is the old border
            if border == (step < 0):
                where = list(edge)
                where[axis] = -border
                shifted[tuple(where)] = IMAGES[tuple(where)]
        lengths, couplings = loop.route(loop.of(shifted))
        classes = lengths.argmax(axis=-1)
        trees = couplings[np.arange(20), :, classes] > 1 / 3 + 1e-6
        both = (trees & loop.trees).sum(axis=-1)
        found.append(both / (trees | loop.trees).sum(axis=-1))
    assert report.stability == pytest.approx(np.mean(found), abs=SUMS)
    assert report.stability < 0.95


def test_silent_capsules_are_counted_by_layer(model):
    silenced = keras.models.clone_model(model)
    silenced.set_weights(model.get_weights())
    kernel, bias = silenced.get_layer("primary_caps").weights
    kernel.assign(np.array(kernel) * np.repeat([1, 0], 4))
    bias.assign(np.array(bias) * np.repeat([1, 0], 4))
    found = rem.faithfulness(silenced, (IMAGES, LABELS)).silent_capsules
    assert found == {"primary_caps": 0.5, "class_caps": 0.0}

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

    def sets(self, n):
        """Returns all sets with as many children as the tree of image n."""
        size = self.trees[n].sum()
        for chosen in itertools.combinations(range(8), size):
            yield np.isin(np.arange(8), chosen)


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


def test_random_controls_are_those_of_all_sets(report, loop):
    def mean(share):
        return np.mean(
            [np.mean([share(n, s) for s in loop.sets(n)]) for n in range(20)]
        )

    for name, is_mean in (("zero", False), ("mean", True)):
        kept = mean(lambda n, s, m=is_mean: loop.kept(n, ~s, m))
        lost = mean(lambda n, s, m=is_mean: loop.lost(n, s, m))
        found = report.sufficiency_random[name], report.necessity_random[name]
        # 20 images with 60 draws; the deviation of a share is at most 0.5.
        assert found == pytest.approx((kept, lost), abs=3 * 0.5 / 1200**0.5)


def active_of(loop, n):
    """Returns the lengths of children of an image, and which are active."""
    lengths = np.linalg.norm(loop.children[n], axis=-1)
    return lengths, lengths > 0.1 * lengths.max()


def test_active_control_is_that_of_all_sets(report, loop):
    def mean(is_mean):
        shares = []
        for n in range(20):
            _, active = active_of(loop, n)
            others = np.flatnonzero(active & ~loop.trees[n])
            size = min(loop.trees[n].sum(), len(others))
            sets = itertools.combinations(others, size)
            lost = [
                loop.lost(n, np.isin(np.arange(8), chosen), is_mean)
                for chosen in sets
            ]
            shares.append(np.mean(lost))
        return np.mean(shares)

    for name, is_mean in (("zero", False), ("mean", True)):
        found = report.necessity_active[name]
        assert found == pytest.approx(mean(is_mean), abs=3 * 0.5 / 1200**0.5)
    assert 0.0 < report.necessity_active["mean"] < report.necessity["mean"]


def test_the_most_active_children_are_those_of_a_loop(report, loop):
    def kept(n, is_mean):
        lengths, _ = active_of(loop, n)
        longest = np.argsort(-lengths)[: loop.trees[n].sum()]
        return loop.kept(n, ~np.isin(np.arange(8), longest), is_mean)

    for name, is_mean in (("zero", False), ("mean", True)):
        each = [kept(n, is_mean) for n in range(20)]
        assert report.sufficiency_longest[name] == pytest.approx(np.mean(each))
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

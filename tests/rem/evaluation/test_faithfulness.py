"""Measures of faithfulness: against loops, known answers and controls."""

import dataclasses
import itertools

import keras
import numpy as np
import pytest

from tests.networks import (
    SMALL_NETWORKS,
    draw_weights,
    of_capsules,
    tiny_capsnet,
)
from tests.tolerance import SUMS
from tfcaps import rem
from tfcaps.layers import ClassCaps, PrimaryMatrixCaps
from tfcaps.models import load_pretrained
from training.datasets import figures

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
    """Three iterations of dynamic routing in NumPy, one image at a time."""

    def __init__(self, model, images=IMAGES):
        inside = keras.Model(
            model.input, model.get_layer("primary_caps").output
        )
        layer = model.get_layer("class_caps")
        self.transformation = np.asarray(layer.transformation, "float64")
        self.bias = np.asarray(layer.bias, "float64")
        self.children = self.of(inside, images)
        self.mean = self.children.mean(axis=0)
        self.inside = inside
        routed = [self.route(child) for child in self.children]
        self.lengths = np.stack([lengths for lengths, _ in routed])
        self.classes = self.lengths.argmax(axis=-1)
        self.couplings = np.stack(
            [c[:, j] for (_, c), j in zip(routed, self.classes, strict=True)]
        )
        self.trees = self.couplings > 1 / 3 + 1e-6
        self.before = self.lengths.max(axis=-1)

    @staticmethod
    def of(inside, images):
        poses = np.asarray(inside(images), "float64")
        return poses.reshape(len(images), -1, poses.shape[-1])

    def route(self, children):
        """Returns lengths `[j]` and couplings `[i, j]`."""
        votes = np.einsum("ik,ijkd->ijd", children, self.transformation)
        logits = np.zeros(votes.shape[:2])
        for _ in range(3):
            couplings = np.exp(logits)
            couplings /= couplings.sum(axis=-1, keepdims=True)
            sums = np.einsum("ij,ijd->jd", couplings, votes) + self.bias
            square = (sums**2).sum(axis=-1, keepdims=True)
            poses = square / (1 + square) * sums / np.sqrt(square + 1e-7)
            logits = logits + np.einsum("ijd,jd->ij", votes, poses)
        return np.linalg.norm(poses, axis=-1), couplings

    def without(self, n, silenced, mean=False):
        other = self.mean if mean else np.zeros_like(self.mean)
        children = np.where(silenced[:, None], other, self.children[n])
        return self.route(children)[0]

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


def test_the_loop_has_all_kinds_of_images(loop):
    """Otherwise the tests below might pass with anything."""
    assert len(np.unique(loop.classes)) == 3
    assert len(np.unique(loop.trees.sum(axis=-1))) >= 3


def shares(share):
    return {"zero": share(False), "mean": share(True)}


def test_necessity_and_sufficiency_are_those_of_a_loop(report, loop):
    every = range(20)
    trees = loop.trees
    assert report.sufficiency == pytest.approx(
        shares(lambda m: np.mean([loop.kept(n, ~trees[n], m) for n in every]))
    )
    assert report.necessity == pytest.approx(
        shares(lambda m: np.mean([loop.lost(n, trees[n], m) for n in every]))
    )
    assert report.same_without_tree == pytest.approx(
        shares(lambda m: np.mean([loop.kept(n, trees[n], m) for n in every]))
    )
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

    assert report.sufficiency_longest == pytest.approx(
        shares(lambda m: np.mean([kept(n, m) for n in range(20)]))
    )
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
        for n, children in enumerate(Loop.of(loop.inside, shifted)):
            lengths, couplings = loop.route(children)
            tree = couplings[:, lengths.argmax()] > 1 / 3 + 1e-6
            both = (tree & loop.trees[n]).sum()
            found.append(both / (tree | loop.trees[n]).sum())
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


def of_pairs(lengths):
    """Returns a network and its data: children 2j and 2j + 1 are of class j.

    Children 8 to 11 vote for class 0 too.
    """
    layer = ClassCaps(4, 2, use_bias=False, name="classes")
    model = of_capsules(layer, 12, 2)
    classes = np.concatenate([np.arange(8) // 2, [0, 0, 0, 0]])
    maps = np.zeros((12, 4, 2, 2), "float32")
    maps[np.arange(12), classes] = 2.0 * np.eye(2)
    layer.transformation.assign(maps)
    poses = np.zeros((len(lengths), 12, 2), "float32")
    poses[:, :, 0] = lengths
    return model, (poses, np.zeros(len(lengths), int))


def test_children_outside_the_tree_do_not_matter():
    lengths = np.full((6, 12), 0.05)
    lengths[:, [0, 6, 7]] = 0.6, 1.0, 1.0
    report = rem.faithfulness(*of_pairs(lengths))
    assert report.necessity["zero"] == 1.0
    assert report.necessity_active == {"zero": 0.0, "mean": 0.0}
    assert report.sufficiency_longest["zero"] == 1.0
    assert "of other active children 0.0 %" in str(report)
    assert "of the most active ones 100.0 %" in str(report)


def test_active_children_that_the_class_needs_are_found():
    # Class 0 has children 0 and 1 and four weak ones, all in its tree.
    lengths = np.zeros((6, 12))
    lengths[:, [0, 1, 8, 9, 10, 11]] = 0.3
    lengths[:, [2, 4, 6]] = 1.0
    report = rem.faithfulness(*of_pairs(lengths))
    assert report.sufficiency["zero"] == 1.0
    assert report.sufficiency_longest["zero"] < 1.0


@pytest.mark.slow
def test_trees_of_figures_are_used_and_cannot_be_replaced():
    (images, labels), _ = figures.draw(500, 777)
    data = images.astype("float32") / 255, labels
    report = rem.faithfulness(load_pretrained("figures"), data)
    assert report.necessity["zero"] > 0.99
    assert report.necessity_active["zero"] < 0.01
    assert 0.85 < report.sufficiency_longest["zero"] < 1.0
    assert not report.empty


def test_the_verdict_has_the_number_and_names_the_reason():
    layer = ClassCaps(3, 4)
    data = np.random.default_rng(0).normal(size=(9, 6, 4)), np.arange(9) % 3
    report = rem.faithfulness(of_capsules(layer, 6, 4), data)

    def changed(zero, mean, random, same=0.125, active=0.0):
        return dataclasses.replace(
            report,
            necessity={"zero": zero, "mean": mean},
            necessity_random={"zero": random, "mean": random},
            necessity_active={"zero": active, "mean": active},
            same_without_tree={"zero": same, "mean": same},
        )

    assert changed(0.27, 0.9, 0.1, 0.85).verdict == (
        "The trees are empty: without its tree, 85.0 % of the images are "
        "still taken for the same class."
    )
    assert changed(0.9, 0.27, 0.1, 0.85).verdict == (
        "The trees are empty: without its tree (its children at their mean "
        "poses), 85.0 % of the images are still taken for the same class."
    )
    assert changed(1.0, 1.0, 0.96).verdict == (
        "The trees are empty: without its tree, 100.0 % of the images lose "
        "their class, and without as many random children 96.0 %, so that it "
        "hardly matters which children are in a tree."
    )
    assert "96.0 %" in changed(1.0, 1.0, 0.96).verdict
    assert changed(1.0, 1.0, 0.96).empty
    assert not changed(0.5, 0.5, 0.4).empty
    assert changed(0.49, 0.5, 0.1).empty
    assert changed(1.0, 1.0, 0.1, active=0.96).verdict == (
        "The trees are empty: without its tree, 100.0 % of the images lose "
        "their class, and without as many other active children 96.0 %, so "
        "that it hardly matters which children are in a tree."
    )
    assert changed(1.0, 1.0, 0.1, active=0.96).empty


PICTURES = np.random.default_rng(3).random((12, 8, 8, 1), dtype=np.float32)
NAMES = np.arange(12) % 3


def test_of_a_network_whose_tree_is_everything():
    """Child 2j and child 2j + 1 vote for class j, if they are there."""
    layer = ClassCaps(4, 2, use_bias=False, name="classes")
    model = of_capsules(layer, 8, 2)
    maps = np.zeros((8, 4, 2, 2), "float32")
    maps[np.arange(8), np.arange(8) // 2] = 2.0 * np.eye(2)
    layer.transformation.assign(maps)
    classes = np.arange(20) % 4
    poses = np.zeros((20, 8, 2), "float32")
    poses[:, :, 0] = np.arange(8) // 2 == classes[:, None]
    report = rem.faithfulness(model, (poses, classes), draws=20)
    for name in ("sufficiency", "necessity"):
        assert getattr(report, name)["zero"] == 1.0
    # Of 28 pairs of children, 15 have none of the tree; one is the tree.
    assert 0.0 < report.necessity_random["zero"] < 13 / 28
    assert report.necessity["mean"] == 1.0
    assert (report.size, report.empty_trees) == (0.25, 0.0)
    assert report.class_share == pytest.approx(1.0)
    assert report.stability is None  # capsules have no pixels
    assert report.silent_capsules == {"classes": 0.0}
    assert not report.empty
    assert report.verdict == (
        "The trees are used: without its tree, 100.0 % of the images lose "
        "their class, without as many random children "
        f"{100 * report.necessity_random['zero']:.1f} %, without as many other "
        "active children 0.0 %."
    )


@pytest.mark.parametrize("compacted", [False, True])
def test_random_children_are_drawn_among_those_that_are_left(compacted):
    """Six of eight children are pruned, and both others are the tree."""
    layer = ClassCaps(2, 2, use_bias=False, name="classes")
    model = of_capsules(layer, 8, 2)
    maps = np.zeros((8, 2, 2, 2), "float32")
    maps[[2, 5], [0, 1]] = 2.0 * np.eye(2)
    layer.transformation.assign(maps)
    if compacted:
        model = rem.compact(model)
    poses = np.ones((20, 8, 2), "float32")
    poses[:10, 2], poses[10:, 5] = 3.0, 3.0
    classes = np.arange(20) // 10
    report = rem.faithfulness(model, (poses, classes), draws=20)
    assert report.necessity["zero"] == 1.0
    # The tree is one child of two, not of eight.
    assert report.size == 0.125
    assert 0.4 < report.necessity_random["zero"] < 0.6
    assert 0.4 < report.sufficiency_random["zero"] < 0.6


def test_of_a_network_whose_tree_is_nothing():
    """The four children of the tree are always there and vote for nothing."""
    layer = ClassCaps(3, 3, routing="regularized", use_bias=False, name="caps")
    model = of_capsules(layer, 8, 3)
    maps = np.zeros((8, 3, 3, 3), "float32")
    for j in range(3):  # the other four vote for the class that they show
        maps[4:, j, j] = 1.0
    layer.transformation.assign(maps)
    coefficients = np.full((8, 3), 0.3, "float32")
    coefficients[:4] = 0.9
    layer.coefficients.assign(coefficients)
    poses = np.tile(np.eye(3, dtype="float32")[NAMES, None], (1, 8, 1))
    report = rem.faithfulness(model, (poses, NAMES))
    assert report.necessity == {"zero": 0.0, "mean": 0.0}
    assert report.same_without_tree == {"zero": 1.0, "mean": 1.0}
    assert report.sufficiency["zero"] == 1 / 3  # the first of equal classes
    assert report.size == 0.5
    assert report.necessity_random["zero"] > 0.0
    assert report.empty
    assert report.verdict == (
        "The trees are empty: without its tree, 100.0 % of the images are "
        "still taken for the same class."
    )
    assert report.class_share == 1.0  # couplings never vary


def lengths_of(model, names, taken, **arguments):
    """Returns lengths and couplings of layers, called one after another."""
    couplings = []
    for name in names:
        *taken, found = model.get_layer(name)(
            *taken, return_couplings=True, **arguments
        )
        couplings.append(np.asarray(found))
    last = np.asarray(taken[-1])
    return np.linalg.norm(last, axis=-1) if last.ndim == 3 else last, couplings


def trees_of(lengths, couplings):
    """Follows couplings down; returns bool `[b, i]`."""
    trees = []
    for n, j in enumerate(lengths.argmax(axis=-1)):
        inside = [int(j)]
        for links in reversed(couplings):
            count, parents = links[n].shape
            inside = [
                i
                for i in range(count)
                if any(links[n][i, j] > 1 / parents + 1e-6 for j in inside)
            ]
        trees.append(np.isin(np.arange(count), inside))
    return np.array(trees)


def check(model, inside, names, **arguments):
    """Compares the measures with calls of the layers themselves."""
    shape = model.input["images"] if isinstance(model.input, dict) else None
    shape = (model.input if shape is None else shape).shape[1:]
    images = np.random.default_rng(1).random((12, *shape), dtype="float32")
    report = rem.faithfulness(model, (images, NAMES), draws=1)
    rows = keras.Model(
        rem.encoder(model).input, model.get_layer(inside).output
    )(images)
    taken = [np.asarray(x) for x in keras.tree.flatten(rows)]
    lengths, couplings = lengths_of(model, names, taken, **arguments)
    trees = trees_of(lengths, couplings)
    classes, before = lengths.argmax(axis=-1), lengths.max(axis=-1)
    grid = trees.reshape(taken[0].shape[:-1])
    # All of them at once, since JAX compiles each call anew.
    silenced = np.concatenate([grid, ~grid, grid, ~grid])
    other = []
    for k, x in enumerate(taken):
        zero, mean = np.zeros_like(x), 0 * x + x.mean(axis=0)
        where = silenced[..., None] if k == 0 else silenced
        values = np.concatenate([zero, zero, mean, mean])
        other.append(np.where(where, values, np.concatenate([x] * 4)))
    found = lengths_of(model, names, other, **arguments)[0]
    for name, (without, alone) in zip(
        ("zero", "mean"), found.reshape(2, 2, 12, -1), strict=True
    ):
        assert report.sufficiency[name] == np.mean(
            alone.argmax(axis=-1) == classes
        )
        same = without.argmax(axis=-1) == classes
        now = without[np.arange(12), classes]
        assert report.same_without_tree[name] == np.mean(same)
        assert report.necessity[name] == np.mean(~same | (now < 0.5 * before))
    assert report.size == np.mean(trees)
    return report


@pytest.mark.parametrize(
    "settings", [{"decoder": True}, {"routing": "regularized"}]
)
def test_measures_with_inputs_of_labels(settings):
    model = tiny_capsnet(**settings)
    draw_weights(
        model, 4, class_caps=3.0, **{f"decoder{k}": 0.1 for k in range(9)}
    )
    report = check(model, "primary_caps", ["class_caps"])
    assert 0.0 < report.size < 1.0


def test_measures_with_activations_of_their_own():
    images = keras.Input((3, 3, 2), name="images")
    capsules = PrimaryMatrixCaps(2, name="primary_caps")(images)
    layer = ClassCaps(
        3, 16, "em", share="type", matrix=True, coordinates=True, name="classes"
    )
    _, activations = layer(*capsules, return_activations=True)
    model = keras.Model(images, activations)
    draw_weights(model, 4, classes=1.0, primary_caps=1.0)
    names = ["classes"]
    report = check(model, "primary_caps", names, return_activations=True)
    assert 0.0 < report.size < 1.0
    assert report.necessity != {"zero": 1.0, "mean": 1.0}
    assert [*report.silent_capsules] == ["primary_caps", "classes"]


def test_a_compact_model_has_the_measures_of_the_whole_one():
    model = draw_weights(tiny_capsnet(), 4, class_caps=3.0)
    layer = model.get_layer("class_caps")
    maps = np.array(layer.transformation)
    maps[::2] = 0.0  # a type, which its convolution then does not make
    maps[3] = 0.0  # and a child that is made nevertheless
    layer.transformation.assign(maps)
    data = PICTURES, NAMES
    compact = rem.compact(model)
    small = compact.get_layer("class_caps")
    assert (small.sources, small.origins) == ((0, 2, 3), (1, 5, 7))
    found, expected = (
        rem.faithfulness(network, data).to_dict()
        for network in (compact, model)
    )
    found.pop("silent_capsules"), expected.pop("silent_capsules")
    for name, value in expected.items():
        if isinstance(value, (float, dict)):
            value = pytest.approx(value, abs=1e-5)
        assert found[name] == value, name


def test_evaluate_has_faithfulness_if_asked_for():
    model = draw_weights(tiny_capsnet(), 4, class_caps=3.0)
    data = PICTURES, NAMES
    used = rem.faithfulness(model, data)
    plain = rem.evaluate(model, data)
    report = rem.evaluate(model, data, faithfulness=True)
    assert plain.faithfulness is None
    assert report.faithfulness == used
    found = report.to_dict()
    assert {**plain.to_dict(), **used.to_dict(), **found} == found
    for name, value in used.to_dict().items():
        if name != "verdict":
            assert found[name] == value
    assert found["verdict"] == report.verdict
    assert report.verdict.endswith(used.verdict)
    assert "trivial: " in report.verdict
    assert report.empty is used.empty
    assert report.trivial is plain.trivial
    rows = [" ".join(line.split()) for line in str(report).splitlines()]
    assert {" ".join(row) for row in used.rows()} <= {*rows}


def test_wrong_arguments_are_errors():
    model = tiny_capsnet()
    data = PICTURES, NAMES
    for name in ("samples", "draws"):
        message = f"`{name}` must be at least 1. Received: {name}=0"
        with pytest.raises(ValueError, match=message):
            rem.faithfulness(model, data, **{name: 0})
    with pytest.raises(ValueError, match="The data set has no samples"):
        rem.faithfulness(model, [])
    with pytest.raises(ValueError, match="has no routed capsule layer"):
        rem.faithfulness(keras.Sequential([keras.Input((4,))]), data)
    em = SMALL_NETWORKS["em_capsnet"]()
    inside = keras.Model(em.input, em.get_layer("conv_caps2").output)
    with pytest.raises(
        ValueError, match="is a ConvCaps, whose children differ"
    ):
        rem.faithfulness(inside, data)

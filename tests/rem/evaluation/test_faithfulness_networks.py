"""Faithfulness with known answers, and of every kind of network."""

import keras
import numpy as np
import pytest

from tests.networks import (
    SMALL_NETWORKS,
    draw_weights,
    of_capsules,
    tiny_capsnet,
)
from tfcaps import rem
from tfcaps.layers import ClassCaps, PrimaryMatrixCaps

IMAGES = np.random.default_rng(3).random((12, 8, 8, 1), dtype=np.float32)
LABELS = np.arange(12) % 3


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
    poses = np.tile(np.eye(3, dtype="float32")[LABELS, None], (1, 8, 1))
    report = rem.faithfulness(model, (poses, LABELS))
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


def check(model, inside, names, layer=None, **arguments):
    """Compares the measures with calls of the layers themselves."""
    pixels = rem.encoder(model).input
    shape = 12, *pixels.shape[1:]
    images = np.random.default_rng(1).random(shape, dtype="float32")
    report = rem.faithfulness(model, (images, LABELS), layer=layer, draws=1)
    rows = keras.Model(pixels, model.get_layer(inside).output)(images)
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


def test_measures_of_children_below_several_layers():
    model = draw_weights(
        SMALL_NETWORKS["multilayer_capsnet"](),
        2,
        hidden_caps1=8.0,
        class_caps=30.0,
    )
    names = ["hidden_caps1", "class_caps"]
    report = check(model, "primary_caps", names, layer="hidden_caps1")
    assert 0.0 < report.necessity["zero"] < 1.0
    images = np.random.default_rng(1).random((5, *model.input.shape[1:]))
    found = rem.trees(model, images, layer="hidden_caps1", couplings=False)
    of_classes = rem.trees(model, images)
    ((active, links),) = of_classes.hidden
    np.testing.assert_array_equal(found.activations, active)
    strong = (links > of_classes.thresholds[0] + 1e-6).astype(int)
    inside = np.einsum("nim,nm->ni", strong, of_classes.in_tree) > 0
    np.testing.assert_array_equal(found.in_tree, inside)
    assert found.types.shape == (inside.shape[1],)


def test_a_compact_model_has_the_measures_of_the_whole_one():
    model = draw_weights(tiny_capsnet(), 4, class_caps=3.0)
    layer = model.get_layer("class_caps")
    maps = np.array(layer.transformation)
    maps[::2] = 0.0  # a type, which its convolution then does not make
    maps[3] = 0.0  # and a child that is made nevertheless
    layer.transformation.assign(maps)
    data = IMAGES, LABELS
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
    data = IMAGES, LABELS
    used = rem.faithfulness(model, data)
    plain = rem.evaluate(model, data)
    report = rem.evaluate(model, data, faithfulness=True)
    assert plain.faithfulness is None and report.faithfulness == used
    expected = {**plain.to_dict(), **used.to_dict(), "verdict": report.verdict}
    assert report.to_dict() == expected
    assert report.verdict.endswith(used.verdict)
    assert "trivial: " in report.verdict
    rows = [" ".join(line.split()) for line in str(report).splitlines()]
    assert {" ".join(row) for row in used.rows()} <= {*rows}


def test_wrong_arguments_are_errors():
    model = tiny_capsnet()
    data = IMAGES, LABELS
    unrouted = keras.Sequential([keras.Input((4,))])
    em = SMALL_NETWORKS["em_capsnet"]()
    inside = keras.Model(em.input, em.get_layer("conv_caps2").output)
    layers = "must be the last routed layer, or .*: one of .'class_caps'.. Rec"
    for network, given, settings, message in (
        (model, data, {"samples": 0}, "`samples`.* at least 1.*samples=0"),
        (model, data, {"draws": 0}, "`draws`.* of at least 1.*draws=0"),
        (model, [], {}, "The data set has no samples"),
        (unrouted, data, {}, "has no routed capsule layer"),
        (model, data, {"layer": "primary_caps"}, layers),
        (inside, data, {}, "is a ConvCaps, whose children differ"),
    ):
        with pytest.raises(ValueError, match=message):
            rem.faithfulness(network, given, **settings)

"""Trees and known parts: made by hand, against loops and scikit-learn."""

import dataclasses

import numpy as np
import pytest
from sklearn import metrics

from tests.networks import draw_weights, tiny_capsnet
from tests.trees import made
from tfcaps import rem
from tfcaps.rem.evaluation.named_parts import part_stability
from training.datasets import figures

KINDS = ("bar", "disc", "ring")


def trees_of(leaves, types=4, children=12, predicted=None):
    """Makes trees of rows of (row, column, type), one list for each image."""
    count = len(leaves)
    # As many children of each type as may be wanted, those not wanted far off.
    kinds = np.tile(np.arange(types), children)
    places = np.full((count, len(kinds), 2), 500.0)
    towards = np.zeros((count, len(kinds)))
    for image, each in enumerate(leaves):
        for number, (row, column, kind) in enumerate(each):
            child = number * types + kind
            places[image, child] = row, column
            towards[image, child] = 0.9 - 0.01 * number
    classes = np.zeros(count, int) if predicted is None else predicted
    return made(towards, kinds, places, predicted=classes)


# Two images: parts at (5, 5) and (5, 15), a loose one at (15, 5).
CENTRES = np.array([[[5, 5], [5, 15]]] * 2, float)
LOOSE = np.array([[[15, 5]]] * 2, float)
GIVEN = {
    "parts": CENTRES,
    "loose": LOOSE,
    "kinds": np.array([[0, 1], [1, 0]]),
    "loose_kinds": np.array([[2], [0]]),
    "kind_names": KINDS,
}
RIGHT = [[(5, 5, 0), (6, 15, 1)], [(5, 6, 1), (5, 15, 0)]]


def named(leaves, **changes):
    """Measures trees of leaves beside the parts that are given."""
    masks = rem.PartMasks(**{**GIVEN, **changes})
    return rem.named_parts(trees_of(leaves), masks)


def test_trees_that_name_their_parts():
    found = named(RIGHT)
    assert found.leaves == 2.0
    assert found.found_once == found.perfect == found.own == 1.0
    assert found.information == found.purity == 1.0
    assert found.table == ((2, 0, 0), (0, 2, 0), (0, 0, 0), (0, 0, 0))
    assert found.names == ("bar", "disc", None, None)
    assert "             0         2         0         0" in str(found)


def of_type(kind):
    return [[(r, c, kind) for r, c, _ in each] for each in RIGHT]


NO_KINDS = dict.fromkeys(("loose", "kinds", "loose_kinds", "kind_names"))
ONE_KIND = {"kinds": np.zeros((2, 2), int), "loose_kinds": None}
ALL_ONE = "100.0 % of their leaves are of type 3."


# Leaves, what else is known of parts, whether they are named, and what is said.
@pytest.mark.parametrize(
    ("leaves", "changes", "named", "told"),
    [
        (
            RIGHT, {}, True,
            "The trees name parts: 100.0 % of the parts have exactly one leaf, "
            "and its type says what is under it (NMI 1.00).",
        ),
        (
            of_type(3), {}, False,
            "The trees do not name parts: the type of a leaf says too little "
            f"about the part under it (NMI 0.00, below 0.80); {ALL_ONE}",
        ),
        (of_type(3), None, False, f"parts: {ALL_ONE}"),
        ([[(5, 5, 0)], [(5, 5, 1)]], {}, False, "50.0 % of the parts have"),
        ([each * 3 for each in RIGHT], {}, False, ": 0.0 % of the parts have"),
        (of_type(0), ONE_KIND, False, "leaves on parts of one kind only"),
        ([[], []], {}, False, "do not name parts: they have no leaf."),
        (RIGHT, NO_KINDS, None, "not known without kinds of the parts"),
        (
            RIGHT, None, None,
            "Whether the trees name parts is not known without masks: their "
            "leaves are of 2 of 4 types, 50.0 % of type 0.",
        ),
    ],
)  # fmt: skip
def test_what_is_said_of_trees(leaves, changes, named, told):
    masks = None if changes is None else rem.PartMasks(**{**GIVEN, **changes})
    found = rem.named_parts(trees_of(leaves), masks)
    assert found.named is named and told in found.verdict
    assert (found.found_once is None) == (masks is None)


def test_a_leaf_names_the_box_it_lies_in():
    boxes = np.zeros((1, 2, 30, 30), bool)
    boxes[0, 0, :, :12] = boxes[0, 1, :, 12:] = True
    given = {"parts": boxes, "kinds": np.array([[0, 1]]), "reach": None}
    trees = trees_of([[(2, 1, 0), (25, 25, 1), (25, 27, 1)]])
    found = rem.named_parts(trees, rem.PartMasks(**given))
    assert (found.found_once, found.own, found.parts_named) == (0.5, 1.0, 1.0)
    assert found.labelled_f1 == pytest.approx(2 * 2 / (3 + 2))
    near = rem.PartMasks(**{**given, "reach": 2.5})
    assert rem.named_parts(trees, near).found_once == 0.0
    masks = rem.PartMasks(**given)
    wrong = rem.named_parts(trees, masks, type_kinds=[1, 1, -1, -1])
    assert (wrong.information, wrong.parts_named) == (1.0, 0.5)


def test_what_is_not_known_is_not_said():
    trees = trees_of(RIGHT)
    found = rem.named_parts(trees, rem.PartMasks(CENTRES))
    assert found.found_once == 1.0 and found.information is None
    assert found.named is None
    assert "not known without kinds of the parts" in found.verdict
    alone = rem.named_parts(trees)
    assert alone.found_once is None and alone.named is None
    assert alone.verdict == (
        "Whether the trees name parts is not known without masks: their leaves "
        "are of 2 of 4 types, 50.0 % of type 0."
    )
    empty = named([[], []])
    assert (empty.leaves, empty.found_once) == (0.0, 0.0)
    assert empty.verdict == "The trees do not name parts: they have no leaf."


def test_types_are_measured_without_parts():
    leaves = [
        [(0, 0, 0), (9, 9, 0), (0, 0, 1)],
        [(0, 0, 1), (0, 0, 0)],
        [(0, 0, 2)],
        [(0, 0, 2)],
    ]
    trees = trees_of(leaves, predicted=np.array([0, 0, 0, 1]))
    found = rem.named_parts(trees)
    assert (found.types, found.types_used) == (4, 3)
    assert found.top_type_share == pytest.approx(3 / 7)
    # Class 0 has {0, 1} twice and {2}, class 1 has {2}.
    of_class_0 = np.log2(3) - 2 / 3
    assert found.slot_bits == pytest.approx(of_class_0 / 2)


def test_all_measures_are_those_of_a_loop(rng):
    images, reach, on = 230, 2.5, 3.7
    centres = rng.uniform(0, 32, (images, 6, 2))
    centres[rng.random((images, 6)) < 0.2] = np.nan
    kinds = rng.integers(3, size=(images, 6))
    leaves = []
    for image in range(images):
        near = rng.integers(6, size=rng.integers(1, 9))
        if image % 3 == 0:
            near = np.arange(4)
        places = centres[image, near] + rng.normal(0, 1.5, (len(near), 2))
        types = (kinds[image, near] + (rng.random(len(near)) < 0.3)) % 4
        leaves.append(
            [
                (*place, kind)
                for place, kind in zip(places.tolist(), types, strict=True)
                if not np.isnan(place).any()
            ]
        )
    table = np.zeros((4, 3), int)
    hits, where, perfect, pairs = [], np.zeros(3), 0, []
    for image, each in enumerate(leaves):
        there = [p for p in range(6) if not np.isnan(centres[image, p, 0])]
        count = dict.fromkeys([p for p in there if p < 4], 0)
        for row, column, kind in each:
            gaps = {
                p: np.hypot(*(centres[image, p] - (row, column))) for p in there
            }
            for p in count:
                count[p] += gaps[p] <= reach
            nearest = min(there, key=gaps.get)
            if gaps[nearest] <= on:
                where[int(nearest >= 4)] += 1
                pairs.append((kind, kinds[image, nearest]))
                table[pairs[-1]] += 1
            else:
                where[2] += 1
        hits += count.values()
        whole = all(n == 1 for n in count.values()) and count
        perfect += bool(whole) and len(each) == len(count)
    masks = rem.PartMasks(
        centres[:, :4], centres[:, 4:], kinds[:, :4], kinds[:, 4:]
    )
    found = rem.named_parts(trees_of(leaves), masks)
    hits = np.array(hits)
    assert found.found_once == np.mean(hits == 1)
    places = found.own, found.loose
    np.testing.assert_allclose(places, where[:2] / where.sum())
    assert found.table == tuple(map(tuple, table.tolist()))
    assert found.perfect == perfect / images > 0
    assert found.purity == pytest.approx(table.max(axis=1).sum() / where.sum())
    assert found.kind_names == ("0", "1", "2")
    agreement = metrics.normalized_mutual_info_score(*zip(*pairs, strict=True))
    assert found.information == pytest.approx(agreement, abs=1e-9)
    expected = metrics.adjusted_rand_score(*zip(*pairs, strict=True))
    assert found.rand_index == pytest.approx(expected, abs=1e-9)


def test_masks_have_centres_and_are_widened():
    masks = np.zeros((2, 3, 20, 20), bool)
    masks[:, 0, 3:8, 3:8] = True  # its centre is (5, 5)
    masks[:, 1, 2, 2:18] = True  # (2, 9.5), wide
    leaves = [[(5, 5, 0), (2, 16, 1)], [(0, 18, 1), (9, 9, 0)]]
    kinds = np.array([[0, 1, -1], [0, 1, -1]])
    found = named(
        leaves, parts=masks, loose=None, loose_kinds=None, kinds=kinds
    )
    assert found.found_once == 0.25  # the first leaf only
    assert found.own == 1.0
    assert found.table[:2] == ((2, 0, 0), (0, 2, 0))
    beside = [[(9.4, 5, 0)], [(9.6, 5, 0)]]  # rows 9 and 10, masks end at 7
    assert rem.named_parts(trees_of(beside), rem.PartMasks(masks)).own == 0.5
    outside = [[(-3, 5, 0)], [(0, 22, 1)]]
    outside = rem.named_parts(trees_of(outside), rem.PartMasks(masks))
    assert outside.own == outside.loose == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parts": CENTRES[:1]}, r"centres, \[2, parts, 2\].* \(1, 2, 2\)"),
        ({"parts": np.ones((2, 2, 9, 9))}, r"`parts` must be masks, bool"),
        ({"loose": np.ones((2, 1, 9, 9), bool)}, "of the same form"),
        ({"parts": CENTRES * np.nan}, "at least one part of one image"),
        ({"kinds": np.zeros((2, 3), int)}, r"ints of the shape \(2, 2\)"),
        ({"kinds": np.zeros((2, 2))}, "Received: float64"),
        ({"kinds": np.full((2, 2), -1)}, "at least 0 for each part"),
        ({"kind_names": ["bar"]}, "1 names and the kind 2"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        named(RIGHT, **changes)


@pytest.mark.parametrize(
    ("moved", "of_types", "named", "words"),
    [
        (0.0, "kinds", True, "name parts, as far as the images alone show: "),
        (5.0, "kinds", False, "do not name parts, as far as the images alone"),
        (0.0, "slots", False, "too little about the part"),
        (None, "kinds", None, "without masks the images do not show clearly"),
    ],
    ids="right beside of_slots noise".split(),
)
def test_images_alone_tell_whether_parts_are_named(
    rng, moved, of_types, named, words
):
    (images, labels), masks = figures.draw(300, 5)
    types = masks.kinds
    if of_types == "slots":
        types = np.broadcast_to(np.arange(5), types.shape)
    places = masks.parts + (moved or 0.0)
    leaves = np.concatenate([places, types[..., None]], axis=-1)
    leaves = [[(r, c, int(t)) for r, c, t in each] for each in leaves]
    trees = trees_of(leaves, types=5, children=5, predicted=labels)
    if moved is None:
        images = rng.normal(size=images.shape)
    parts = rem.estimated_parts(trees, images / 255.0)
    measured = rem.named_parts(trees, parts)
    assert measured.named is named and words in measured.verdict


def test_parts_need_trees_with_places():
    trees = trees_of(RIGHT)
    trees = dataclasses.replace(trees, places=trees.places * np.nan)
    with pytest.raises(ValueError, match="only where children have positions"):
        rem.named_parts(trees, rem.PartMasks(**GIVEN))
    assert rem.named_parts(trees).types_used == 2


def test_stability_is_that_of_trees_under_noise():
    model = draw_weights(tiny_capsnet(), 4, class_caps=3.0)
    images = np.random.default_rng(0).random((20, 8, 8, 1), dtype=np.float32)
    fields = rem.receptive_fields(model).centres.reshape(-1, 2)
    masks = rem.PartMasks(np.repeat(fields[np.newaxis], 20, axis=0), reach=1.0)
    trees = rem.trees(model, images)
    found = part_stability(model, images, trees, masks)
    noise = np.random.default_rng(0).normal(0, 0.2, images.shape)
    noisy = (images + noise.clip(-0.25, 0.25)).astype("float32")
    both = [trees.in_tree, rem.trees(model, noisy).in_tree]
    before, after = (x.reshape(20, 4, 2).any(axis=-1) for x in both)
    assert found == np.mean((before == after).all(axis=-1))
    assert 0.0 < found < 1.0

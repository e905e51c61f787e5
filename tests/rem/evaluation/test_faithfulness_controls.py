"""Other children than the tree's: active ones, and the most active ones."""

import dataclasses

import numpy as np
import pytest

from tests.networks import of_capsules
from tfcaps import rem
from tfcaps.layers import ClassCaps


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


@pytest.fixture(scope="module")
def report():
    layer = ClassCaps(3, 4)
    data = np.random.default_rng(0).normal(size=(9, 6, 4)), np.arange(9) % 3
    return rem.faithfulness(of_capsules(layer, 6, 4), data)


ALL = "100.0 % of the images lose their class, and without as many"


@pytest.mark.parametrize(
    ("zero", "mean", "random", "active", "told"),
    [
        (0.27, 0.9, 0.1, 0.0, "tree, 85.0 % of the images are still taken for"),
        (0.9, 0.27, 0.1, 0.0, "(its children at their mean poses), 85.0 % of"),
        (1.0, 1.0, 0.96, 0.0, f"{ALL} random children 96.0 %, so that it"),
        (1.0, 1.0, 0.1, 0.96, f"{ALL} other active children 96.0 %, so that"),
        (0.49, 0.5, 0.1, 0.0, "85.0 %"),
        (0.5, 0.5, 0.4, 0.0, "The trees are used: without its tree, 50.0 % of"),
    ],
)
def test_the_verdict_has_the_number_and_names_the_reason(
    zero, mean, random, active, told, report
):
    changed = dataclasses.replace(
        report,
        necessity={"zero": zero, "mean": mean},
        necessity_random={"zero": random, "mean": random},
        necessity_active={"zero": active, "mean": active},
        same_without_tree={"zero": 0.85, "mean": 0.85},
    )
    assert told in changed.verdict
    assert changed.empty == changed.verdict.startswith("The trees are empty")
    assert changed.empty == ("used" not in told)

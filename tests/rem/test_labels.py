"""How labels are read: indices, and rows that sum to 1."""

import numpy as np
import pytest

from tfcaps.labels import class_of_each

CLASSES = np.array([2, 0, 1, 3, 2])
ONE_HOT = np.eye(4)[CLASSES]


SOFT = {
    "smoothed": 0.9 * ONE_HOT + 0.025,
    "mixed": 0.6 * ONE_HOT + 0.4 * np.roll(ONE_HOT, 1, axis=0),
    "rounded": (0.7 * ONE_HOT + 0.075).astype("float16"),
    "bool": ONE_HOT.astype(bool),
    "column": CLASSES[:, None],
    "float": CLASSES.astype("float32"),
}


@pytest.mark.parametrize("name", SOFT)
def test_labels_of_one_class_are_read(name):
    np.testing.assert_array_equal(class_of_each(SOFT[name], 4), CLASSES)


def test_a_teacher_of_1000_classes_is_read(rng):
    logits = rng.normal(size=(50, 1000))
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    for kind in ("float64", "float32", "float16"):
        found = class_of_each(shares.astype(kind), 1000)
        np.testing.assert_array_equal(found, shares.astype(kind).argmax(axis=1))
    uniform = class_of_each(np.full((1, 1000), 1e-3), 1000)
    assert uniform.tolist() == [0]  # not an image of no class


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0.95, 0.05, 0.05]], "must sum to 1.*which sums to 1.05"),
        ([[0, 1, 0], [0, 1, 1]], "must sum to 1.*sums to 2. Leave out"),
        ([[0, 0, 0]], "must sum to 1.*sums to 0"),
        ([["a", "b", "c"]], "must be numbers.*np.unique.*Received: .*'a'"),
        (["cat"], "must be numbers.*'cat'"),
        ([None], "must be numbers.*Received: None"),
        ([np.nan], "must be finite. Received: 1 num"),
        ([[0.5, np.nan, 0.5]], "must be finite"),
        ([3], r"in \[0, 2\]. Received: 3 to 3"),
        ([-2], r"in \[0, 2\]. Received: -2 to -2. Leave out"),
        ([0.5], "whole numbers"),
        ([[1, 0]], r"for 3 classes. Received: labels of the shape \(1, 2\)"),
        ([[[1]]], r"Received: labels of the shape \(1, 1, 1\)"),
    ],
)
def test_other_labels_are_asked_about(labels, message):
    with pytest.raises(ValueError, match=message):
        class_of_each(labels, 3)

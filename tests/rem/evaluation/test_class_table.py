"""What a printed report says of the classes, also of a thousand."""

import numpy as np

from tfcaps.rem import CouplingDictionary
from tfcaps.rem.evaluation.report import class_table


def trees_of(num_classes, rng, most=16):
    """Class `j` has `j % most` keys, each of them once."""
    trees = CouplingDictionary(num_classes)
    for j in range(num_classes):
        count = j % most
        codes = np.arange(count)[:, None] * np.ones((1, 3), int)
        trees.update(codes, np.full(count, j))
    return trees


def test_thirty_classes_have_a_row_each(rng):
    title, *rows = class_table(trees_of(30, rng))
    assert "class  samples  keys  entropy" in title
    assert [int(row.split()[0]) for row in rows] == list(range(30))


def test_a_thousand_classes_are_the_ends_of_their_entropy(rng):
    trees = trees_of(1000, rng)
    title, *rows = class_table(trees)
    assert len(rows) == 11
    # Those without a sample are in no row; the report counts them.
    assert [int(row.split()[0]) for row in rows[:5]] == [1, 17, 33, 49, 65]
    assert {int(row.split()[0]) % 16 for row in rows[-5:]} == {15}
    in_between = int(np.sum(trees.num_samples > 0)) - 10
    assert f"{in_between} classes of an entropy in between" in rows[5]


def test_few_of_many_classes_are_all_there(rng):
    trees = CouplingDictionary(1000)
    trees.update([[1], [2], [1]], [7, 7, 900])
    _, *rows = class_table(trees)
    assert [int(row.split()[0]) for row in rows] == [900, 7]

"""Whether trees lie on parts: made by hand, and against a loop."""

import json

import numpy as np
import pytest

from tfcaps import rem

CENTRES = np.array([[[1, 1], [1, 6]], [[6, 1], [6, 6]]], float)


def masks(*boxes, size=8):
    """Masks `[boxes, size, size]` of boxes of first and last row and column."""
    made = np.zeros((len(boxes), size, size), bool)
    for mask, (top, last, left, right) in zip(made, boxes, strict=True):
        mask[top : last + 1, left : right + 1] = True
    return made


UPPER = masks((0, 2, 0, 2), (0, 2, 5, 7))[np.newaxis]  # left and right
LOWER_RIGHT = masks((5, 7, 5, 7))[np.newaxis]


def test_shares_of_a_tree_that_is_made_by_hand():
    found = rem.trees_on_parts(
        [[0.5, 0.1, 0.1, 0.3]], CENTRES, UPPER, LOWER_RIGHT, margin=0
    )
    assert found.own == pytest.approx(0.6)
    assert found.loose == pytest.approx(0.3)
    assert found.nothing == pytest.approx(0.1)
    assert (found.own_of_all, found.loose_of_all) == (0.5, 0.25)
    assert (found.parts_found, found.samples) == (1.0, 1)
    assert found.empty_trees == 0.0


def test_centres_are_rounded_and_may_lie_beyond_the_border():
    part = masks((0, 0, 0, 0))[np.newaxis]
    for centre, margin, wanted in (
        ((0.49, 0.0), 0, 1.0),
        ((0.5, 0.0), 0, 0.0),
        ((-1.0, -2.0), 2, 1.0),
        ((-1.0, -3.0), 2, 0.0),
        ((0.0, 9.0), 2, 0.0),
        ((90.0, 0.0), 2, 0.0),
    ):
        found = rem.trees_on_parts([[1.0]], [centre], part, margin=margin)
        assert found.own == wanted, centre
    last = masks((7, 7, 7, 7))[np.newaxis]
    for centre in ((-1.0, 7.0), (7.0, -1.0), (8.0, 7.0), (7.0, 8.0)):
        assert rem.trees_on_parts([[1.0]], [centre], last, margin=0).own == 0.0


def test_empty_trees_have_no_shares_and_find_no_part():
    weights = np.array([[1.0, 0, 0, 0], [0, 0, 0, 0]])
    parts = UPPER.repeat(2, axis=0)
    found = rem.trees_on_parts(weights, CENTRES, parts)
    assert (found.own, found.nothing) == (1.0, 0.0)
    assert (found.empty_trees, found.parts_found) == (0.5, 0.25)
    none = rem.trees_on_parts(0.0 * weights, CENTRES, parts)
    assert none.own is none.loose is none.nothing is None
    assert (none.empty_trees, none.parts_found) == (1.0, 0.0)
    assert "on the object's parts           –" in str(none)


def test_parts_that_are_not_there_need_not_be_found():
    parts = np.concatenate([UPPER, np.zeros_like(UPPER)], axis=1)
    found = rem.trees_on_parts([[1.0, 0, 0, 0]], CENTRES, parts)
    assert found.parts_found == 0.5


def test_all_measures_are_those_of_a_loop(rng):
    images, rows, columns, types, margin = 230, 3, 4, 2, 1
    weights = rng.random((images, rows * columns * types))
    weights[rng.random(weights.shape) < 0.7] = 0.0
    weights[rng.random(images) < 0.1] = 0.0
    centres = rng.uniform(-1, 16, (rows, columns, 2))
    parts = rng.random((images, 2, 16, 16)) < 0.02
    loose = rng.random((images, 3, 16, 16)) < 0.01
    shares, found, there = [], 0, 0
    for image in range(images):
        share = np.zeros(3)
        hit = np.zeros(2, bool)
        for child, weight in enumerate(weights[image]):
            row, column = centres.reshape(-1, 2)[child // types]

            def lies_on(mask, row=row, column=column):
                return any(
                    abs(round(row) - r) <= margin
                    and abs(round(column) - c) <= margin
                    for r, c in np.argwhere(mask)
                )

            on_parts = np.array([lies_on(mask) for mask in parts[image]])
            on_loose = any(lies_on(mask) for mask in loose[image])
            hit |= on_parts & (weight > 0)
            kind = 0 if on_parts.any() else 1 if on_loose else 2
            share[kind] += weight
        if share.sum():
            shares.append(share / share.sum())
        present = parts[image].any(axis=(1, 2))
        found += np.sum(hit & present)
        there += np.sum(present)
    measured = rem.trees_on_parts(weights, centres, parts, loose, margin=margin)
    np.testing.assert_allclose(
        [measured.own, measured.loose, measured.nothing],
        np.mean(shares, axis=0),
        rtol=1e-12,
    )
    assert measured.parts_found == found / there
    assert measured.empty_trees == (images - len(shares)) / images > 0


def test_measures_are_saved_as_json(tmp_path):
    found = rem.trees_on_parts([[1.0, 0, 0, 0]], CENTRES, UPPER)
    found.save(tmp_path / "parts.json")
    assert json.loads((tmp_path / "parts.json").read_text()) == found.to_dict()
    assert found.to_dict()["margin"] == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": [1.0]}, r"shape \[n, children\].* Received: \(1,\)"),
        ({"weights": np.ones((0, 4))}, r"one image and one child at least"),
        ({"weights": [[1, 1, 1, -0.5]]}, "at least 0. .* least is -0.5"),
        ({"weights": [[1, 1, 1, np.nan]]}, "must be finite"),
        ({"weights": [[1, 1, 1, 1, 1]]}, "4 centres of 2 numbers for 5 child"),
        ({"centres": np.ones((2, 2, 3))}, "4 centres of 3 numbers"),
        ({"parts": UPPER.astype(int)}, "`parts` must be bool .*: int64"),
        ({"parts": UPPER.repeat(2, axis=0)}, r"`parts` .*\[1, parts, rows"),
        ({"loose": UPPER[:, :, :4]}, r"`loose` .*\(1, 2, 4, 8\)"),
        ({"loose": UPPER[0]}, r"`loose` .* Received: bool .*\(2, 8, 8\)"),
        ({"parts": ~np.ones_like(UPPER)}, "masks that are False everywhere"),
        ({"margin": -1}, "`margin` must be at least 0. Received: -1"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    usable = {
        "weights": [[1.0, 0, 0, 0]],
        "centres": CENTRES,
        "parts": UPPER,
        "loose": LOWER_RIGHT,
    }
    with pytest.raises(ValueError, match=message):
        rem.trees_on_parts(**{**usable, **changes})


def test_all_activations_are_the_control_of_trees():
    weights, active = [[0.5, 0, 0, 0.5]], [[0.6, 0.2, 0.1, 0.1]]
    found = rem.trees_on_parts(
        weights, CENTRES, UPPER, LOWER_RIGHT, activations=active, margin=0
    )
    assert (found.own, found.loose) == (0.5, 0.5)
    assert found.own_of_active == pytest.approx(0.8)
    assert found.loose_of_active == pytest.approx(0.1)
    assert "all activations on the object's parts   80.0%" in str(found)
    alone = rem.trees_on_parts(weights, CENTRES, UPPER, LOWER_RIGHT, margin=0)
    assert alone.own_of_active is alone.loose_of_active is None
    assert alone.parts_found == found.parts_found == 0.5
    for wrong, told in (([[1.0]], r"shape \(1, 1\)\.$"), (-1, "least is -0.6")):
        wrong = np.multiply(active, wrong) if wrong == -1 else wrong
        with pytest.raises(ValueError, match=f"`activations` must.*{told}"):
            rem.trees_on_parts(weights, CENTRES, UPPER, activations=wrong)

"""How many types of parts there are: merged, split, and taken away."""

import numpy as np
import pytest

from tests.parts.test_network import PARTS, begun, images_of
from tests.tolerance import assert_close
from tfcaps import rem
from tfcaps.models import constellation_capsnet
from tfcaps.parts import split_merge, without_spare_types
from tfcaps.parts.split_merge import Occurrences

COUNT, SIDE = 240, 12
UPPER, LOWER = (-3, 0), (2, 0)  # cells from the class to its parts


def found_parts(rng, types):
    """Returns what is found of parts at an upper and a lower place.

    Args:
        rng: Draws places, and the type at each.
        types: For each class two tuples of types, of which one is found.
    """
    labels = rng.integers(len(types), size=COUNT)
    cells = rng.integers(4, 8, size=(COUNT, 2))
    active = np.zeros((COUNT, SIDE, SIDE, 4))
    for n, (label, cell) in enumerate(zip(labels, cells, strict=True)):
        for place, of_place in zip((UPPER, LOWER), types[label], strict=True):
            row, column = cell + place
            active[n, row, column, rng.choice(of_place)] = 1.0
    return Occurrences(active, cells, labels)


@pytest.mark.parametrize(
    ("types", "pairs"),
    [
        # Types 0 and 1 are found at the same place, each in half of the images.
        ([((0, 1), (2,)), ((2,), (0, 1))], [{0, 1}]),
        ([((0, 1, 3), (2,)), ((2,), (0, 1, 3))], [{0, 1}, {0, 3}, {1, 3}]),
        # At one place of one class, and at different ones of the other.
        ([((0,), (2,)), ((2,), (0,))], []),
    ],
)
def test_types_found_at_the_same_places_are_one(rng, types, pairs):
    found = found_parts(rng, types)
    merged = split_merge.same_kinds(found.shares(2), found.mass, 0.5)
    assert all({*pair} in pairs for pair in merged)
    assert len(merged) == len({k for pair in pairs for k in pair}) - bool(pairs)


def test_shares_are_one_where_a_part_always_is(rng):
    found = found_parts(rng, [((0,), (2,)), ((2,), (0,))])
    shares = found.shares(2)
    middle = np.array([SIDE, SIDE])
    for j, (upper, lower) in enumerate([(0, 2), (2, 0)]):
        for t, place in ((upper, UPPER), (lower, LOWER)):
            assert shares[j, *(middle + place), t] == pytest.approx(1, abs=0.02)
            slots = split_merge.slots_of(shares[j : j + 1], t, 0.4, 2.0)
            np.testing.assert_array_equal(slots.cells, [place])
    assert found.mass == pytest.approx([1, 0, 1, 0])


@pytest.mark.parametrize("kinds", [1, 2, "one slot"])
def test_a_type_is_split_if_two_places_show_different_things(rng, kinds):
    """A part that a class has twice is none of two kinds."""
    found = found_parts(rng, [((0,), (0,)), ((0,), (0,))])
    images = rng.normal(0.1, 0.05, (COUNT, SIDE, SIDE, 1))
    features = rng.normal(0.0, 0.3, (COUNT, SIDE, SIDE, 3))
    for n, (label, cell) in enumerate(
        zip(found.labels, found.cells, strict=True)
    ):
        for k, place in enumerate((UPPER, LOWER)):
            kind = (label + k) % 2 if kinds == 2 else 0
            if kinds == "one slot":  # of the other kind, which is too few
                kind = int(label == k == 0)
            row, column = cell + place
            window = (n, slice(row - 1, row + 2), slice(column - 1, column + 2))
            images[window] += PARTS[kind][..., None]
            features[n, row, column, kind] += 1.0

    def pictures(where):
        beside = np.arange(-1, 2)
        rows = where[:, 1, None, None] + beside[:, None]
        columns = where[:, 2, None, None] + beside
        seen = images[where[:, 0, None, None], rows, columns]
        return seen.reshape(len(where), -1)

    slots = split_merge.slots_of(found.shares(2), 0, 0.4, 2.0)
    np.testing.assert_array_equal(slots.classes, [0, 0, 1, 1])
    split = split_merge.two_kinds(found, 0, slots, pictures, features)
    if kinds == "one slot":
        assert split is None
        return
    if kinds == 1:
        assert split is None or split.clarity < 0.5
        other = found_parts(rng, [((0,), (2,)), ((2,), (1,))])  # at one place
        slots = split_merge.slots_of(other.shares(2), 0, 0.4, 2.0)
        assert split_merge.two_kinds(other, 0, slots, None, None) is None
        return
    assert split.clarity > 0.9
    assert split.second[0] == split.second[3] != split.second[1]
    logits = features @ split.kernel + split.bias
    rows, columns = (found.cells + UPPER).T
    upper = logits[np.arange(COUNT), rows, columns]
    told = np.mean((upper > 0) == (found.labels == 0))
    assert max(told, 1 - told) > 0.9
    # As little as that changes where nothing was learnt.
    assert np.quantile(np.abs(logits), 0.98) < 2.5


@pytest.fixture
def twins():
    """A network whose types 0 and 1 look the same, and its schedule."""
    images, labels, _ = images_of(64)
    network = constellation_capsnet((16, 16, 1), 2, 3, window=3, filters=(4,))
    schedule = begun(network, images, labels)
    kernel, bias, templates = schedule._type_weights()
    kernel[..., 1], templates[..., 1] = kernel[..., 0], templates[..., 0]
    schedule._set_type_weights(kernel, bias, templates)
    return network, schedule, images, labels


def test_of_merged_types_one_is_left(twins):
    network, schedule, images, labels = twins
    found, _ = schedule._look(images, labels)
    kernel, bias, templates = schedule._type_weights()
    schedule._set_type_weights(kernel, bias + [0.0, 1.0, 0.0], templates)
    active = np.zeros_like(found.active)
    active[:, 2, 2, 0] = active[:, 6, 6, 2] = 1.0
    active[::4, 2, 2] = [0.0, 1.0, 0.0]
    # Each class has both, so that one of the twins is as good as the other.
    labels = np.arange(64) // 4 % 2
    made = Occurrences(active, np.full((64, 2), 4), labels)
    merged = schedule._merge_types(made, 0.5)
    assert merged.mass == pytest.approx([1, 0, 1])
    first = bias[0]
    after, bias, _ = schedule._type_weights()
    assert_close(after[..., 0], kernel[..., 0], atol=1e-6)
    # The weight of each is its share of what was found.
    assert bias[0] == pytest.approx(first + 0.25, abs=1e-5)
    assert not after[..., 1].any() and bias[1] < -5000
    # Momentum moves it on, and it is taken back.
    moved = schedule._parts.conv.kernel + np.full_like(after, 0.01)
    schedule._parts.conv.kernel.assign(moved)
    schedule.on_epoch_end(epoch=2)
    assert not schedule._type_weights()[0][..., 1].any()
    network.get_layer("class_caps").slots.assign([[1, 0], [1, 1], [1, 1]])
    smaller = without_spare_types(network)
    assert smaller.get_layer("part_caps").num_types == 2
    layer = smaller.get_layer("class_caps")
    np.testing.assert_array_equal(layer.slots, [[1, 0], [1, 1]])
    trees, before = (rem.trees(each, images) for each in (smaller, network))
    assert not before.activations[:, before.types == 1].any()
    assert_close(trees.activations, before.activations[:, before.types != 1])
    network.get_layer("class_caps").slots.assign([[1, 0], [0, 0], [1, 1]])
    assert_close(smaller(images), network(images), atol=1e-5)
    assert without_spare_types(smaller) is smaller


def test_a_type_of_two_kinds_becomes_two_of_one(twins, rng):
    network, schedule, images, labels = twins
    kernel, bias, templates = schedule._type_weights()
    kernel[..., 1], bias[1] = 0.0, -1e4
    schedule._set_type_weights(kernel, bias, templates)
    _, seen = schedule._look(images, labels)
    assert seen.features.shape == (64, 8, 8, 4)
    active = np.zeros_like(seen.active)
    active[:, 2, 4, 0] = active[:, 6, 4, 0] = 1.0
    images = rng.normal(0.1, 0.05, images.shape).astype("float32")
    features = rng.normal(size=seen.features.shape)
    for n, label in enumerate(labels):
        for kind, row in ((label, 2), (1 - label, 6)):
            around = slice(2 * row, 2 * row + 3), slice(8, 11)  # of pixel 9
            images[(n, *around, 0)] += PARTS[kind]
            features[n, row, 4, 0] += 6.0 * kind
    made = Occurrences(active, np.full((64, 2), 4), labels)
    seen = seen._replace(
        active=active, features=features, drawn=np.zeros_like(images)
    )
    splits = schedule._split_types(made, images, seen)
    assert sorted(int(t) for t, _ in splits) == [0, 1]
    after, new_bias, _ = schedule._type_weights()
    # Together they are what the one was, and one of them is of each kind.
    assert_close(after[..., :2].mean(axis=-1), kernel[..., 0], atol=1e-5)
    assert np.mean(new_bias[:2]) == pytest.approx(bias[0] - np.log(2), abs=1e-5)
    for split in splits:
        schedule._part_slots(*split)
    layer = network.get_layer("class_caps")
    assert np.asarray(layer.slots)[:2].tolist() == [[1, 1], [1, 1]]
    rows = np.asarray(layer.shifts)[:2, :, 0]
    np.testing.assert_allclose(np.abs(rows), 4.0, atol=1e-4)
    assert rows[0, 0] == -rows[0, 1] == -rows[1, 0] == rows[1, 1]

"""Routing by the place at which votes agree: what it computes."""

import numpy as np
import pytest

from tests import reference
from tests.gradients import value_and_gradients
from tests.tolerance import assert_all_close, assert_close
from tfcaps.routing import MeanShiftRouting, Votes
from tfcaps.routing.translated_votes import TranslatedVotes

# Two types at three places: both agree for parent 0, one for parent 1.
PLACES = np.array([[0.0, 0.0], [4.0, 4.0], [20.0, 0.0]])


def votes_of(rng, batch=2, children=6, parents=3):
    return rng.normal(scale=2.0, size=(batch, children, parents, 2))


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("width", [1.0, 3.0])
def test_routing_equals_loops(steps, width, rng):
    votes = votes_of(rng)
    active = rng.uniform(size=(2, 6))
    slots = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    routing = MeanShiftRouting(types=2, steps=steps, width=width)
    routed = routing(votes, active, slots=slots)
    mode = routing.mode(Votes(votes), active, slots=slots)
    *expected, evidence = reference.mean_shift_routing(
        votes, active, slots, width=width, steps=steps
    )
    assert_all_close(routed, expected, atol=2e-5)
    assert_close(mode.evidence, evidence, atol=2e-5)


@pytest.mark.parametrize("slot", [1.0, 0.0])
def test_votes_from_a_grid_equal_loops(slot, rng):
    rows, columns, types, parents = 3, 4, 2, 3
    cells = [np.arange(n, dtype="float32") * 2.0 + 1.0 for n in (rows, columns)]
    grid = np.stack(np.meshgrid(*cells, indexing="ij"), axis=-1)
    grid = np.repeat(grid[None, :, :, None], types, axis=3)
    places = grid + rng.uniform(-1, 1, size=(2, rows, columns, types, 2))
    shifts = rng.normal(size=(types, parents, 2)).astype("float32")
    active = rng.uniform(size=(2, rows * columns * types)).astype("float32")
    slots = np.ones((types, parents), "float32")
    slots[1, 2] = slot
    votes = TranslatedVotes(places.astype("float32"), shifts, cells, cells)
    routing = MeanShiftRouting(types=types)
    routed = routing(votes, active, slots=slots)
    cast = (places[..., None, :] - shifts).reshape(2, -1, parents, 2)
    scanned = (grid[..., None, :] - shifts).reshape(1, -1, parents, 2)
    expected = reference.mean_shift_routing(
        cast,
        active,
        slots,
        anchors=np.stack(np.meshgrid(*cells, indexing="ij"), -1).reshape(-1, 2),
        scanned=np.repeat(scanned, 2, axis=0),
    )
    assert_close(votes.tensor[:, 1], cast[:, :, 1])
    assert_all_close(routed, expected[:3], atol=5e-5)


def complete(missing=()):
    """Votes of two types for parent 0 at one place, activations."""
    votes = np.zeros((1, 6, 2, 2), "float32")
    votes[0, :, 0] = np.repeat(PLACES, 2, axis=0)
    votes[0, :, 1] = np.repeat(PLACES[::-1] * [1, 7], 2, axis=0)
    active = np.zeros((1, 6), "float32")
    active[0, [0, 1]] = 1.0  # both types, at the first place
    active[0, list(missing)] = 0.0
    return votes, active


def test_a_parent_that_is_complete_is_fully_active():
    votes, active = complete()
    routed = MeanShiftRouting(types=2)(votes, active)
    assert_close(routed.activations[0], 0.86, atol=0.15)
    votes[0, :, 1] += 50.0 * np.arange(6)[:, None]  # nothing agrees there
    routed = MeanShiftRouting(types=2)(votes, active)
    assert routed.activations[0, 0] > 0.99 > 0.9 > routed.activations[0, 1]
    assert_close(routed.couplings[0, :2, 0], 1.0, atol=0.03)
    assert_close(routed.poses[0, 0], 0.0, atol=1e-5)


def test_nothing_active_leaves_every_parent_at_zero():
    votes, active = complete(missing=(0, 1))
    routed = MeanShiftRouting(types=2)(votes, active)
    assert_close(routed.activations, 0.0)
    assert_close(routed.couplings, 0.0)


def test_a_part_that_a_class_has_not_is_neither_missed_nor_coupled():
    votes, active = complete(missing=(1,))
    votes[0, :, 1] += 50.0 * np.arange(6)[:, None]
    routing = MeanShiftRouting(types=2)
    asked = routing(votes, active, slots=np.ones((2, 2)))
    slots = np.array([[1.0, 1.0], [0.0, 1.0]])
    spared = routing(votes, active, slots=slots)
    assert spared.activations[0, 0] > asked.activations[0, 0] + 0.2
    _, active = complete()
    coupled = routing(votes, active, slots=slots).couplings
    assert coupled[0, 0, 0] > 0.8 and coupled[0, 1, 0] == 0.0


def test_rounded_couplings_decide_the_activation(rng):
    votes, active = complete()
    active *= 0.3
    plain = MeanShiftRouting(types=2)(votes, active)
    rounded = MeanShiftRouting(types=2, levels=2)(votes, active)
    assert set(np.unique(rounded.couplings)) <= {0.0, 1.0}
    assert np.max(np.abs(plain.activations - rounded.activations)) > 0.05


def test_gradients_reach_votes_and_activations(rng):
    votes = votes_of(rng).astype("float32")
    active = rng.uniform(size=(2, 6)).astype("float32")
    routing = MeanShiftRouting(types=2)
    _, (of_votes, of_activations) = value_and_gradients(
        lambda v, a: routing.mode(Votes(v), a).evidence, votes, active
    )
    assert np.all(np.isfinite(of_votes)) and np.any(of_votes != 0)
    assert np.all(np.isfinite(of_activations)) and np.any(of_activations != 0)


def test_children_must_be_as_many_of_each_type():
    with pytest.raises(ValueError, match="Children must be as many"):
        MeanShiftRouting(types=4)(np.zeros((1, 6, 2, 2)))

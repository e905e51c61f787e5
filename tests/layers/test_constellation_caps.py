"""ConstellationCaps: blueprints, slots, and what reads them."""

import numpy as np
import pytest

from tests import reference
from tests.tolerance import assert_all_close, assert_close
from tfcaps.layers import ClassCaps, ConstellationCaps
from tfcaps.routing import MeanShiftRouting

ROWS, COLUMNS, TYPES, CLASSES = 8, 9, 2, 3


def children(rng):
    grid = np.stack(
        np.meshgrid(2.0 * np.arange(ROWS) + 1, 2.0 * np.arange(COLUMNS)), -1
    ).transpose(1, 0, 2)
    places = np.broadcast_to(grid[None, :, :, None], (2, ROWS, COLUMNS, 2, 2))
    places = places + rng.uniform(-1, 1, size=places.shape)
    active = rng.uniform(size=(2, ROWS, COLUMNS, TYPES)) ** 4
    return places.astype("float32"), active.astype("float32"), grid


def made(**settings):
    layer = ConstellationCaps(CLASSES, stride=2, offset=(1, 0), **settings)
    layer.build((None, ROWS, COLUMNS, TYPES, 2))
    return layer


def test_layer_equals_loops(rng):
    places, active, grid = children(rng)
    layer = made(spread=4.0)
    layer.slots.assign([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    *routed, evidence = layer(
        places,
        active,
        return_activations=True,
        return_couplings=True,
        return_evidence=True,
    )
    shifts = np.asarray(layer.shifts)
    votes = (places[..., None, :] - shifts).reshape(2, -1, CLASSES, 2)
    scanned = (grid[:, :, None, None] - shifts).reshape(1, -1, CLASSES, 2)
    *expected, logs = reference.mean_shift_routing(
        votes,
        active.reshape(2, -1),
        np.asarray(layer.slots),
        # An eighth of the places on each side is left out.
        anchors=grid[1:-1, 1:-1].reshape(-1, 2),
        scanned=np.repeat(scanned, 2, axis=0),
    )
    assert_all_close([*routed, evidence], [*expected, logs], atol=1e-4)


def test_it_is_a_class_caps_whose_children_say_where_they_are(rng):
    places, active, _ = children(rng)
    layer = made()
    assert isinstance(layer, ClassCaps)
    found = np.asarray(layer.child_places(places))
    np.testing.assert_allclose(found[:, 5], places.reshape(2, -1, 2)[:, 5])
    layer.slots.assign([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    voting = np.asarray(layer.voting_activations(places, active))
    voting = voting.reshape(active.shape)
    np.testing.assert_allclose(voting[..., 0], 0.0)
    np.testing.assert_allclose(voting[..., 1], active[..., 1])


def test_repulsion_counts_types_of_a_class_that_are_near():
    layer = made(repulsion=0.5, apart=6.0)
    shifts = np.zeros((TYPES, CLASSES, 2), "float32")
    shifts[1] = [[3.0, 0.0], [0.0, 0.0], [20.0, 0.0]]
    layer.blueprint.assign(shifts / layer.side)
    near = (1 - 9 / 36) ** 2 + 1.0 + 0.0  # class by class, both ways
    expected = 0.5 * 2 * near / (TYPES * CLASSES)
    np.testing.assert_allclose(layer.losses[0], expected, rtol=1e-5)
    layer.slots.assign([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    expected = 0.5 * 2 * (near - 1.0) / (TYPES * CLASSES)
    np.testing.assert_allclose(layer.losses[0], expected, rtol=1e-5)


def test_half_precision_keeps_pixels(rng):
    places, active, _ = children(rng)
    layer = made()
    half = ConstellationCaps(
        CLASSES, stride=2, offset=(1, 0), dtype="mixed_float16"
    )
    half.build((None, ROWS, COLUMNS, TYPES, 2))
    half.set_weights(layer.get_weights())
    assert_close(half(places, active), layer(places, active), atol=1e-5)


def test_types_of_the_routing_are_those_of_the_input():
    assert made(routing=MeanShiftRouting(types=7)).routing.types == TYPES


def test_places_need_activations(rng):
    with pytest.raises(ValueError, match="need the `activations` of the parts"):
        made()(children(rng)[0])

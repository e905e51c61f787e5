"""Parts and constellations: PartCaps, ConstellationCaps, TemplateDecoder."""

from functools import partial

import numpy as np
import pytest

from tests.backends import compiled
from tests.gradients import value_and_gradients
from tests.networks import built
from tests.registry import ALL
from tests.tolerance import assert_all_close, assert_close
from tfcaps.parts import ConstellationCaps, PartCaps, TemplateDecoder
from tfcaps.routing.loop import unrolled


def outputs_for(presence, **settings):
    """Returns outputs for a presence `[h, w, 3]` of two types and nothing."""
    return outputs_of_logits(np.log(np.maximum(presence, 1e-12)), **settings)


def outputs_of_logits(logits, **settings):
    layer = PartCaps(2, **settings)
    layer.build((None, *logits.shape))
    same = np.eye(3)[None, None]
    layer.conv.set_weights([same[..., :-1], np.zeros(2)])
    layer.nothing_conv.set_weights([same[..., -1:], np.zeros(1)])
    return layer(logits[None].astype("float32"))


def one_part(row, column, share=0.9):
    presence = np.zeros((7, 7, 3))
    presence[..., -1] = 1.0
    presence[row, column] = share, 0.0, 1.0 - share
    return presence


def test_only_the_strongest_of_a_window_stays_active():
    presence = one_part(3, 3)
    presence[3, 5] = [0.2, 0.4, 0.4]  # less is present here
    presence[6, 0] = [0.0, 0.3, 0.7]  # alone in its window
    _, (active,) = outputs_for(presence)
    expected = np.zeros((7, 7, 2))
    expected[3, 3, 0], expected[6, 0, 1] = 0.9, 0.3
    assert_close(active, expected)


def test_of_parts_that_are_certain_one_wins():
    logits = np.zeros((5, 5, 3))
    logits[2, :, 0] = 30.0, 31.0, 33.0, 32.0, 31.0  # presences of 1
    _, (active,) = outputs_of_logits(logits)
    expected = np.zeros((5, 5, 2))
    expected[2, 2, 0] = 1.0
    assert_close(active, expected)


def test_pose_is_the_place_and_the_same_for_all_types():
    presence = one_part(2, 4)
    poses, _ = outputs_for(presence, stride=2, offset=(1, 0))
    assert_close(poses[0, 2, 4, 0], [5.0, 8.0], atol=1e-4)
    np.testing.assert_allclose(poses[0, :, :, 0], poses[0, :, :, 1])
    presence[2, 5] = presence[2, 4]  # as much is present beside it
    poses, _ = outputs_for(presence, stride=2, offset=(1, 0))
    assert_close(poses[0, 2, 4, 0], [5.0, 9.0], atol=1e-4)


def test_training_is_soft_until_it_is_hard(rng):
    features = rng.normal(size=(2, 6, 6, 3)).astype("float32")
    layer = PartCaps(2)
    _, at_inference, presence = layer(features, return_presence=True)
    _, soft = layer(features, training=True)
    presence = np.asarray(presence)
    strength = (1.0 - presence[..., -1]) ** 4
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(strength, [(0, 0), (2, 2), (2, 2)]), (5, 5), axis=(1, 2)
    )
    share = strength / (windows.sum(axis=(-2, -1)) + 1e-3)
    assert_close(soft, presence[..., :-1] * share[..., None], rtol=1e-4)
    assert np.max(np.abs(np.asarray(soft) - at_inference)) > 0.01
    layer.hardness.assign(1.0)
    _, hard = layer(features, training=True)
    assert_close(hard, at_inference)


ROWS, COLUMNS, TYPES, CLASSES = 8, 9, 2, 3
SHAPE = (None, ROWS, COLUMNS, TYPES, 2)


@pytest.fixture
def parts(rng):
    """Places and activations of parts, and the centres of their cells."""
    grid = 2.0 * np.moveaxis(np.indices((ROWS, COLUMNS)), 0, -1) + [1, 0]
    places = grid[:, :, None] + rng.uniform(-1, 1, size=(2, *SHAPE[1:]))
    active = rng.uniform(size=(2, *SHAPE[1:-1])) ** 4
    return places.astype("float32"), active.astype("float32"), grid


def constellation(**settings):
    layer = ConstellationCaps(CLASSES, stride=2, offset=(1, 0), **settings)
    return built(layer, SHAPE, None)


SLOTS = np.array([[1, 1, 0], [1, 0, 1], [1, 0, 0], [0, 1, 1]], "float32")


def reference(layer, places, active, grid):
    """Returns poses, activations, evidence and couplings by loops.

    Args:
        layer: A layer of three classes.
        places: Places `[b, i, 2]` of the children, types last to vary.
        active: Their activations `[b, i]`.
        grid: The centres `[i, 2]` of their cells.
    """
    shifts, there, batch = np.asarray(layer.shifts), np.asarray(layer.slots), 2
    children, slots = active.shape[1], len(there)
    types = slots // layer.max_of_type
    # Each child may be each of the parts of its type.
    child, slot = np.nonzero(
        np.arange(children)[:, None] % types == np.arange(slots) % types
    )
    of_slot = (slot == np.arange(slots)[:, None]).astype(float)  # [s, k]
    epsilon, width = layer.epsilon, np.exp(layer.log_width)
    # An eighth of the places on each side is left out.
    anchors = grid.reshape(ROWS, COLUMNS, types, 2)[1:-1, 1:-1, 0]
    anchors = anchors.reshape(-1, 2)

    def ratio(mass):
        share = epsilon + (1.0 - epsilon) * np.minimum(mass, 1.0)
        return np.log(share) - 0.5 * np.log(epsilon)

    def near(votes, place):
        apart = np.sum((votes - place) ** 2, axis=-1)
        return np.exp(-apart / (2.0 * width**2))

    poses, total = np.zeros((batch, CLASSES, 2)), np.zeros((batch, CLASSES))
    found = np.zeros((batch, len(child), CLASSES))
    votes = places[:, child, None] - shifts[slot]  # [b, k, j, 2]

    def mean_of(weights, b, j):
        if weights.sum() <= 0.1:
            return poses[b, j]
        return weights @ votes[b, :, j] / weights.sum()

    for b, j in np.ndindex(batch, CLASSES):
        wanted = grid[child] - shifts[slot, j]
        mass = [
            of_slot @ (active[b, child] * near(wanted, place))
            for place in anchors
        ]
        logs = ratio(np.array(mass)) @ there[:, j]
        total[b, j] = np.log(np.sum(np.exp(logs)))
        poses[b, j] = anchors[np.argmax(logs)]
        for step in range(3):
            amounts = active[b, child] * near(votes[b, :, j], poses[b, j])
            amounts = amounts * there[slot, j]
            if layer.shared:
                amounts *= amounts / ((of_slot @ amounts) @ of_slot + 1e-9)
            if step < 2:
                poses[b, j] = mean_of(amounts, b, j)
        found[b, :, j] = amounts
    belongs = 1.2 * found / (found + 0.2)
    shares = np.exp(total) / np.exp(total).sum(axis=-1, keepdims=True)
    couplings = shares[:, None] * belongs
    for b, j in np.ndindex(batch, CLASSES):
        poses[b, j] = mean_of(couplings[b, :, j], b, j)
    complete = np.sum(there * ratio(of_slot @ couplings), axis=1)
    most = max(there.sum(axis=0).max(), 1.0)
    active = np.clip(0.5 - complete / (most * np.log(epsilon)), 0.0, 1.0)
    of_child = (child == np.arange(children)[:, None]).astype(float)
    shown = np.minimum(of_child @ couplings, 1.0)
    best = np.eye(CLASSES)[active.argmax(axis=-1)]
    decided = np.minimum(of_child @ (belongs * best[:, None]), 1.0)
    return poses, active, total, shown, decided


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_parts": 3},
        {"max_of_type": 2},
        {"max_of_type": 2, "max_parts": 3},
        {"shared": False},
    ],
    ids=str,
)
def test_layer_equals_the_reference(settings, parts, rng):
    places, active, grid = parts
    layer = constellation(**settings)
    count = int(layer.slots.shape[0])
    first = np.arange(count)[:, None] < TYPES
    if not layer.shared:  # type 0 is of class 0, and type 1 of class 1
        first = np.eye(count, CLASSES) > 0
    first = np.broadcast_to(first, (count, CLASSES))
    np.testing.assert_array_equal(np.asarray(layer.slots), first)
    layer.slots.assign(SLOTS[:count])
    layer.blueprint.assign(rng.normal(0.0, 0.2, layer.blueprint.shape))
    found = layer(places, active, **ALL, return_evidence=True, training=True)
    shown = layer(places, active, return_couplings=True)[1]
    cells = np.repeat(grid.reshape(-1, 2), TYPES, axis=0)
    *expected, decided = reference(
        layer, places.reshape(2, -1, 2), active.reshape(2, -1), cells
    )
    assert_all_close(found, expected, atol=1e-4)
    assert_close(shown, decided, atol=1e-3)


def test_nothing_takes_the_place_of_a_tree_that_has_all():
    """Where types are of one class, which has all that are near."""
    places = 2.0 * np.moveaxis(np.indices((8, 8)), 0, -1)[None, :, :, None]
    places[0, 3:5, 3:5] = 7.0  # four votes for one place
    places[0, 5, 3] = 9.0, 7.0  # further away
    active = np.zeros((1, 8, 8, 1))
    active[0, 3:5, 3:5] = active[0, 5, 3] = 1.0
    for shared in (True, False):
        layer = ConstellationCaps(1, stride=2, shared=shared)
        layer.build(places.shape)
        layer.blueprint.assign([[[0.0, 0.0]]])
        inside = np.asarray(layer(places, active, return_couplings=True)[1])
        inside = inside.reshape(active.shape) > 0.5
        left = layer(places, active * ~inside, return_activations=True)[1]
        assert (float(left[0, 0]) < 0.1) == (not shared)


@pytest.mark.parametrize("count", [0, 9, 10])  # an eighth of the places is 9
def test_places_of_nothing_change_nothing(count, parts, rng):
    places, active, _ = parts
    some = rng.permutation(ROWS * COLUMNS)[:count]
    nothing = np.ones(ROWS * COLUMNS, bool)
    nothing[some] = False
    active[:1, nothing.reshape(ROWS, COLUMNS)] = 0.0
    active[1:, :, 1:] = 0.0
    layer = constellation(max_of_type=2, max_parts=3)
    layer.slots.assign(SLOTS)
    found = layer(places, active, **ALL)  # at the few places of something
    with unrolled():
        expected = layer(places, active, **ALL)
    assert_all_close(found, expected, atol=1e-4)


def test_gradients_at_inference_are_those_of_all_places(parts):
    """XLA computes them too, though there is a condition."""
    places, active, _ = parts
    active = active * (np.arange(COLUMNS) < 1)[:, None]  # few places
    layer = constellation()

    def gradients(active):
        call = partial(layer, places, return_activations=True)
        return value_and_gradients(lambda x: call(x)[1], active)[1][0]

    found = compiled(gradients)(active)
    with unrolled():
        expected = gradients(active)
    there = active != 0
    found, expected = (np.asarray(x)[there] for x in (found, expected))
    assert_close(found, expected, atol=1e-5)
    assert np.abs(found).max() > 0.1


def test_its_children_say_where_they_are(parts):
    places, active, _ = parts
    layer = constellation()
    found = np.asarray(layer.child_places(places))
    np.testing.assert_allclose(found[:, 5], places.reshape(2, -1, 2)[:, 5])
    layer.slots.assign([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    voting = np.asarray(layer.voting_activations(places, active))
    voting = voting.reshape(active.shape)
    np.testing.assert_allclose(voting, active * [0.0, 1.0])
    with pytest.raises(ValueError, match="need the `activations` of the parts"):
        layer(places)


def test_repulsion_counts_types_of_a_class_that_are_near():
    layer = constellation()
    shifts = np.zeros((TYPES, CLASSES, 2), "float32")
    shifts[1] = [[3.0, 0.0], [0.0, 0.0], [20.0, 0.0]]
    layer.blueprint.assign(shifts / layer.side)
    near = (1 - 9 / 36) ** 2 + 1.0 + 0.0  # class by class, both ways
    expected = 0.1 * 2 * near / (TYPES * CLASSES)
    np.testing.assert_allclose(layer.losses[0], expected, rtol=1e-5)
    layer.slots.assign([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    expected = 0.1 * 2 * (near - 1.0) / (TYPES * CLASSES)
    np.testing.assert_allclose(layer.losses[0], expected, rtol=1e-5)


@pytest.mark.parametrize("offset", [(0, 0), (1, 0)])
def test_a_template_is_drawn_around_its_place(offset):
    decoder = TemplateDecoder((8, 7, 1), 3, offset)
    found = np.zeros((1, 4, 4, 2), "float32")
    decoder.build(found.shape)
    plain = np.asarray(decoder.templates)
    fading = np.asarray(decoder.pictures) / np.where(plain == 0, 1, plain)
    template = np.zeros((3, 3, 1, 2), "float32")
    template[1, 1, 0, 1] = 1.0
    template[0, 1, 0, 1] = 0.5
    decoder.templates.assign(template / np.maximum(fading, 1e-6))
    decoder.ground.assign([0.25])
    found[0, 2, 1, 1] = 1.0
    row, column = 4 + offset[0], 2 + offset[1]
    expected = np.full((8, 7), 0.25)
    expected[row, column], expected[row - 1, column] = 1.25, 0.75
    assert_close(decoder(found)[0, ..., 0], expected, atol=1e-5)


def test_templates_become_what_is_seen_where_a_type_was_found():
    decoder = built(TemplateDecoder((8, 8, 1), 3), (None, 4, 4, 2), None)
    before = np.array(decoder.templates)
    images = np.zeros((5, 8, 8, 1), "float32")
    images[:, 4, 2] = 1.0
    images[:, 4, 3] = 0.5
    found = np.zeros((5, 4, 4, 2), "float32")
    found[:, 2, 1, 0] = 0.9
    decoder.adapt(images, found)
    pictures = np.asarray(decoder.pictures)[:, :, 0, 0]
    assert pictures.argmax() == 4 and pictures[1, 2] > pictures[1, 0] == 0.0
    np.testing.assert_allclose(decoder.templates[..., 1], before[..., 1])
    with pytest.raises(ValueError, match="`active` must be above"):
        decoder.adapt(images, 0.1 * found)

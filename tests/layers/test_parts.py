"""Parts and constellations: PartCaps, ConstellationCaps, TemplateDecoder."""

from functools import partial

import numpy as np
import pytest

from tests import reference
from tests.backends import compiled
from tests.gradients import value_and_gradients
from tests.networks import built
from tests.registry import ALL
from tests.tolerance import assert_all_close, assert_close
from tfcaps.layers import (
    ClassCaps,
    ConstellationCaps,
    PartCaps,
    TemplateDecoder,
)
from tfcaps.routing import MeanShiftRouting
from tfcaps.routing.loop import unrolled
from tfcaps.routing.votes import Votes


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


def test_parts_that_may_cross_compete_within_their_type():
    presence = np.full((7, 7, 3), 1e-3)
    presence[..., -1] = 1.0
    presence[3, 3] = [9.0, 4.0, 1.0]  # both types, each more than nothing
    presence[3, 4] = [1.0, 9.0, 1.0]
    poses, (active,) = outputs_for(presence, window=3, exclusive=False)
    assert_close(active[3, 3], [0.9, 0.0])
    assert_close(active[3, 4], [0.0, 0.9])
    assert poses[0, 3, 3, 0, 1] < 3.2 < 3.4 < poses[0, 3, 3, 1, 1]


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


@pytest.mark.parametrize("training", [False, True])
def test_per_type_the_strongest_place_of_each_type_stays(rng, training):
    features = rng.normal(size=(2, 6, 5, 3)).astype("float32")
    layer = PartCaps(4, 11, per_type=True)
    _, active, presence = layer(
        features, return_presence=True, training=training
    )
    types = np.asarray(presence)[..., :-1]
    most = types.max(axis=(1, 2), keepdims=True)
    assert_close(active, np.where(types == most, types, 0.0))


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


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("most", [None, 3])
@pytest.mark.parametrize("instances", [1, 2])
def test_layer_equals_the_reference(instances, most, several, parts):
    places, active, grid = parts
    routing = MeanShiftRouting(several=several)
    layer = constellation(
        routing=routing, spread=4.0, instances=instances, parts=most
    )
    once = [1.0] * TYPES + [0.0] * TYPES * (instances - 1)  # at first
    assert np.asarray(layer.slots).T.tolist() == [once] * CLASSES
    layer.slots.assign(SLOTS[: instances * TYPES])
    found = layer(places, active, **ALL, return_evidence=True, training=True)
    decided = np.asarray(layer(places, active, return_couplings=True)[1])
    # Each child once more for each instance of its type, of types of their own.
    places = np.tile(places, (1, 1, 1, instances, 1))
    active = np.tile(active, instances)
    shifts = np.asarray(layer.shifts)
    votes = (places[..., None, :] - shifts).reshape(2, -1, CLASSES, 2)
    scanned = (grid[:, :, None, None] - shifts).reshape(1, -1, CLASSES, 2)
    *expected, every, logs = reference.mean_shift(
        layer.routing,
        votes,
        active.reshape(2, -1),
        np.asarray(layer.slots),
        # An eighth of the places on each side is left out.
        anchors=grid[1:-1, 1:-1].reshape(-1, 2),
        scanned=np.repeat(scanned, 2, axis=0),
        instances=instances,
    )
    every = np.reshape(every, (2, -1, instances, TYPES, CLASSES)).sum(axis=2)
    every = every.reshape(2, -1, CLASSES)
    expected += [np.minimum(every, 1.0), logs]
    assert_all_close(found, expected, atol=1e-4)
    assert np.all(np.count_nonzero(decided, axis=-1) <= 1)
    if several:
        return
    best = np.asarray(found[1]).argmax(axis=-1)
    shares = np.exp(logs) / np.exp(logs).sum(axis=-1, keepdims=True)
    every = np.minimum(every / shares[:, None], 1.0)
    for couplings, of_image, parent in zip(decided, every, best, strict=True):
        assert_close(couplings[:, parent], of_image[:, parent], atol=1e-3)
        assert np.count_nonzero(couplings.any(axis=0)) == 1


@pytest.mark.parametrize("count", [0, 9, 10])  # an eighth of the places is 9
@pytest.mark.parametrize("several", [False, True])
def test_places_of_nothing_change_nothing(several, count, parts, rng):
    places, active, _ = parts
    some = rng.permutation(ROWS * COLUMNS)[:count]
    nothing = np.ones(ROWS * COLUMNS, bool)
    nothing[some] = False
    active[:1, nothing.reshape(ROWS, COLUMNS)] = 0.0
    active[1:, :, 1:] = 0.0
    layer = constellation(
        routing=MeanShiftRouting(several=several), instances=2, parts=3
    )
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


@pytest.mark.parametrize("several", [False, True])
def test_a_child_of_equal_parents_is_in_the_tree_of_one(several):
    routing = MeanShiftRouting(types=2, several=several)
    votes = Votes(np.zeros((2, 2, 3, 2), "float32"))
    active = np.array([[1, 1], [0, 0]], "float32")  # and nothing
    mode = routing.best_place(votes, active)
    shared, decided = (
        np.asarray(routing.trace(votes, mode, active, decided=each).couplings)
        for each in (False, True)
    )
    assert np.all((shared[0] > 0.3) & (shared[0] < 0.4))
    assert_close(decided[0], [[1, 0, 0]] * 2, atol=0.01)
    assert_close(decided[1], 0.0)


def test_constellations_are_parts_of_constellations(rng):
    """Two parents are found at once, of which a third layer is made."""
    places = 2.0 * np.moveaxis(np.indices((16, 16), "float32"), 0, -1)
    places = np.repeat(places[None, :, :, None], 2, axis=3)
    active = np.zeros((1, 16, 16, 2), "float32")
    active[0, 3, 3, 0] = active[0, 3, 5, 1] = 1.0  # 0, then 1 beside it
    active[0, 11, 9, 0] = active[0, 9, 9, 1] = 1.0  # 1 above 0
    several = MeanShiftRouting(several=True)
    layer = ConstellationCaps(3, several, stride=2)
    layer.build(places.shape)
    beside, above = [[0, -2], [0, 2]], [[2, 0], [-2, 0]]
    absent = [[5, 5], [-5, -5]]
    shifts = np.swapaxes([beside, above, absent], 0, 1)
    layer.blueprint.assign(shifts / layer.side)
    poses, found, couplings = layer(places, active, **ALL)
    assert_close(found[0, :2], [1.0, 1.0], atol=0.04)
    assert found[0, 2] < 0.5
    assert_close(poses[0, :2], [[6, 8], [20, 18]], atol=0.1)
    assert np.sum(np.asarray(couplings) > 0.5) == 4
    top = ConstellationCaps(2, stride=32)
    top.build(poses.shape)
    shifts = np.array([[[-7, -5], [7, 5]], [[7, 5], [-7, -5]], [[0, 0]] * 2])
    top.blueprint.assign(shifts / top.side)
    top.slots.assign([[1, 1], [1, 1], [0, 0]])
    poses, classes, couplings = top(poses, found, **ALL)
    assert_close(poses[0, 0], [13, 13], atol=0.1)
    assert classes[0, 0] > 0.95 and classes[0, 1] < 0.5
    np.testing.assert_array_equal(
        np.asarray(couplings)[0] > 0.5, [[1, 0], [1, 0], [0, 0]]
    )


def test_it_is_a_class_caps_whose_children_say_where_they_are(parts):
    places, active, _ = parts
    layer = constellation()
    assert isinstance(layer, ClassCaps)
    found = np.asarray(layer.child_places(places))
    np.testing.assert_allclose(found[:, 5], places.reshape(2, -1, 2)[:, 5])
    layer.slots.assign([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    voting = np.asarray(layer.voting_activations(places, active))
    voting = voting.reshape(active.shape)
    np.testing.assert_allclose(voting, active * [0.0, 1.0])
    with pytest.raises(ValueError, match="need the `activations` of the parts"):
        layer(places)


def test_repulsion_counts_types_of_a_class_that_are_near():
    layer = constellation(repulsion=0.5, apart=6.0)
    shifts = np.zeros((TYPES, CLASSES, 2), "float32")
    shifts[1] = [[3.0, 0.0], [0.0, 0.0], [20.0, 0.0]]
    layer.blueprint.assign(shifts / layer.side)
    near = (1 - 9 / 36) ** 2 + 1.0 + 0.0  # class by class, both ways
    expected = 0.5 * 2 * near / (TYPES * CLASSES)
    np.testing.assert_allclose(layer.losses[0], expected, rtol=1e-5)
    layer.slots.assign([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    expected = 0.5 * 2 * (near - 1.0) / (TYPES * CLASSES)
    np.testing.assert_allclose(layer.losses[0], expected, rtol=1e-5)


def test_half_precision_keeps_pixels(parts):
    places, active, _ = parts
    layer = constellation(routing=MeanShiftRouting(types=7))
    assert layer.routing.types == TYPES
    half = constellation(dtype="mixed_float16")
    half.set_weights(layer.get_weights())
    assert_close(half(places, active), layer(places, active), atol=1e-5)


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
    with pytest.raises(ValueError, match="`found` must have activations above"):
        decoder.adapt(images, 0.1 * found)

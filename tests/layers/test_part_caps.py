"""PartCaps: types, competition of places, and poses that are places."""

import numpy as np

from tests.tolerance import assert_close
from tfcaps.layers import PartCaps
from tfcaps.layers.part_caps import compete


def made(presence, **settings):
    """Returns outputs for a presence `[h, w, t + 1]`, made by the kernel."""
    presence = np.asarray(presence, "float32")[None]
    types = presence.shape[-1] - 1
    layer = PartCaps(types, **settings)
    layer.build(presence.shape)
    same = np.eye(types + 1)[None, None]
    layer.conv.set_weights([same[..., :-1], np.zeros(types)])
    layer.nothing_conv.set_weights([same[..., -1:], np.zeros(1)])
    return layer, layer(np.log(np.maximum(presence, 1e-12)))


def one_part(row, column, of_type=0, share=0.9, size=7, types=2):
    presence = np.zeros((size, size, types + 1))
    presence[..., -1] = 1.0
    presence[row, column] = 0.0
    presence[row, column, of_type] = share
    presence[row, column, -1] = 1.0 - share
    return presence


def test_only_the_strongest_of_a_window_stays_active():
    presence = one_part(3, 3)
    presence[3, 5] = [0.2, 0.4, 0.4]  # less is present here
    presence[6, 0] = [0.0, 0.3, 0.7]  # alone in its window
    _, (_, active) = made(presence)
    active = np.asarray(active[0])
    assert_close(active[3, 3], [0.9, 0.0])
    np.testing.assert_allclose(active[3, 5], 0.0)
    assert_close(active[6, 0], [0.0, 0.3])


def test_pose_is_the_place_and_the_same_for_all_types():
    presence = one_part(2, 4)
    layer, (poses, _) = made(presence, stride=2, offset=(1, 0))
    assert_close(poses[0, 2, 4, 0], [5.0, 8.0], atol=1e-4)
    np.testing.assert_allclose(poses[0, :, :, 0], poses[0, :, :, 1])
    presence[2, 5] = presence[2, 4]  # as much is present beside it
    _, (poses, _) = made(presence, stride=2, offset=(1, 0))
    assert_close(poses[0, 2, 4, 0], [5.0, 9.0], atol=1e-4)


def test_training_is_soft_until_it_is_hard(rng):
    features = rng.normal(size=(2, 6, 6, 3)).astype("float32")
    layer = PartCaps(2)
    _, at_inference = layer(features)
    _, _, presence = layer(features, return_presence=True)
    _, soft = layer(features, training=True)
    assert_close(soft, compete(presence, 5, 4.0))
    assert np.max(np.abs(np.asarray(soft) - at_inference)) > 0.01
    layer.hardness.assign(1.0)
    _, hard = layer(features, training=True)
    assert_close(hard, at_inference)


def test_soft_competition_equals_loops(rng):
    presence = rng.dirichlet([1.0, 1.0, 1.0], size=(1, 5, 4)).astype("float32")
    soft = np.asarray(compete(presence, 3, 2.0))
    present = 1.0 - presence[0, ..., -1]
    for row, column in np.ndindex(5, 4):
        around = present[
            max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2
        ]
        share = present[row, column] ** 2 / (np.sum(around**2) + 1e-3)
        expected = presence[0, row, column, :-1] * share
        np.testing.assert_allclose(soft[0, row, column], expected, rtol=1e-4)

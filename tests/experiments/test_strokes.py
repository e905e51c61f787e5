"""Tests of the experiment on strokes: its network has trees of two layers."""

import keras
import numpy as np
import pytest

from experiments import strokes
from tfcaps import rem
from tfcaps.shared_parts import SharedParts
from tfcaps.shared_strokes import SharedStrokes

PARTS = SharedParts(
    classes=np.array([0, 0, 1, 1]),
    types=np.array([0, 1, 1, 2]),
    places=np.array([[0, -6], [0, 6], [0, -6], [0, 6]]),
    sizes=np.full((4, 2), 8),
)
STROKES = SharedStrokes(
    parts=np.array([0, 0, 1, 2, 2]),
    types=np.array([0, 0, 1, 1, 1]),
    places=np.array([[-2, 0], [2, 0], [0, 0], [-3, 0], [3, 0]]),
    lines=np.zeros((5, 2)),
)


@pytest.mark.slow
def test_trees_go_from_strokes_to_characters(tmp_path):
    network = strokes.network_of((24, 24, 1), 2, PARTS, STROKES)
    network.save(tmp_path / "network.keras")
    loaded = keras.models.load_model(tmp_path / "network.keras")
    # Strokes of the first class, in place of what convolutions find.
    found = np.zeros((1, 12, 12, 2), "float32")
    found[0, [5, 7], 3, 0] = found[0, 6, 9, 1] = 1.0
    at = 2.0 * np.moveaxis(np.indices((12, 12), "float32"), 0, -1)
    at = np.broadcast_to(at[None, :, :, None], (*found.shape, 2))
    below = [keras.Input(x.shape[1:]) for x in (at, found)]
    layers = [loaded.get_layer(name) for name in ("components", "class_caps")]
    taken = below
    for layer in layers:
        taken = layer(*taken, return_activations=True)
    model = keras.Model(below, taken[1])
    assert np.argmax(model([at, found])) == 0
    _, couplings = layers[0](at, found, return_couplings=True)
    inside = np.asarray(couplings)[0] > 0.5
    np.testing.assert_array_equal(inside.sum(axis=0), [2, 1, 0])
    tree = rem.trees(network, np.zeros((1, 24, 24, 1), "float32")).parse_tree()
    assert [len(active) for active in tree.activations] == [288, 3, 2]

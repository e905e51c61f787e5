"""Letters brought upright, and their lines; trees of two layers of strokes."""

import keras
import numpy as np
import pytest

from examples.letters import lines
from examples.strokes import train as strokes
from tfcaps import rem
from tfcaps.shared_parts import SharedParts
from tfcaps.shared_strokes import SharedStrokes
from training.datasets import syndacate


@pytest.fixture(scope="module")
def found():
    (images, labels), masks = syndacate.draw(300, 900041)
    letters = lines.standing(images)
    frames, maps = lines.find(letters, labels)
    return letters, labels, masks, frames, maps


def test_letters_of_a_class_look_alike_whatever_their_pose(found):
    letters, labels, masks, _, maps = found
    lines = np.linalg.inv(maps) @ (
        masks.centres - letters.middles[:, None]
    ).transpose(0, 2, 1)
    for j in range(10):
        own = lines[labels == j][:, :, masks.kinds[labels == j][0] >= 0]
        assert own.std(axis=0).max() < 0.7  # pixels


def test_all_lines_are_found_and_nothing_else(found):
    letters, labels, masks, _, maps = found
    parts = lines.find_parts(letters.seen(maps), labels)
    there = (masks.kinds >= 0).sum(axis=1)
    for j in range(10):
        assert np.sum(parts.classes == j) == there[labels == j][0]


def test_a_class_is_told_by_its_view(found):
    letters, labels, _, frames, maps = found
    views = frames.maps(letters)
    np.testing.assert_allclose(views[np.arange(300), labels], maps, atol=0.35)
    alike = (letters.turned() @ frames.means.T).max(axis=1)
    assert np.mean(alike.argmax(axis=1) == labels) > 0.97


def test_a_stroke_has_the_place_and_angle_of_its_line():
    picture = np.zeros((32, 32))
    picture[8, 5:20] = picture[10:30, 24] = 1.0
    across, down = sorted(lines.strokes(picture), key=lambda each: each[2])
    np.testing.assert_allclose(across, (8, 12, 0), atol=0.6)
    np.testing.assert_allclose(down, (19.5, 24, 90), atol=0.6)


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

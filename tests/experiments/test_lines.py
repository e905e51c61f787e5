"""Letters brought upright, and their lines."""

import numpy as np
import pytest

from experiments import lines
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
    assert 4 <= parts.num_types <= 9


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

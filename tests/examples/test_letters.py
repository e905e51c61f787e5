"""Letters of lines: how they are drawn, brought upright, and their lines."""

import numpy as np
import pytest

from examples.letters import data, lines
from tests.training.datasets.test_drawn import assert_drawn_by_seed
from tfcaps.rem.evaluation.named_parts import centres_of


@pytest.fixture(scope="module")
def found():
    (images, labels), masks = data.draw(300, 900041)
    letters = lines.standing(images)
    frames, maps = lines.find(letters, labels)
    return letters, labels, masks, frames, maps


def test_letters_of_a_class_look_alike_whatever_their_pose(found):
    letters, labels, masks, _, maps = found
    centres = centres_of(masks.parts)  # NaN where there is no line
    lines = np.linalg.inv(maps) @ (
        centres - letters.middles[:, None]
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
    runs = lines.straight_runs(picture)
    across, down = sorted(runs, key=lambda each: each[2])
    np.testing.assert_allclose(across, (8, 12, 0, 15), atol=1.1)
    np.testing.assert_allclose(down, (19.5, 24, 90, 20), atol=1.1)


def test_kinds_are_the_directions_of_the_upright_letter(found):
    _, labels, masks, _, _ = found
    assert masks.parts.sum(axis=1).max() == 1
    names = np.array(masks.kind_names)
    for letter, *kinds in (
        ("A", "steep rise", "steep fall", "bar"), ("F", "stem", "bar", "bar"),
        ("N", "stem", "fall", "stem"), ("X", "rise", "fall"),
    ):  # fmt: skip
        for own in masks.kinds[labels == list(data.LETTERS).index(letter)]:
            assert names[own[own >= 0]].tolist() == kinds


@pytest.mark.slow
def test_what_is_drawn_depends_on_the_seed_alone():
    assert_drawn_by_seed(data, 2044257823)

"""Letters made of lines: what is drawn, and what their masks are of."""

import numpy as np
import pytest

from training.datasets import load, syndacate

LINES = dict(zip("AEFILMNWXZ", (3, 4, 3, 1, 2, 4, 3, 4, 2, 3), strict=True))


@pytest.fixture(scope="module")
def drawn():
    return syndacate.draw(60, 5)


def test_letters_have_their_lines_and_stand_in_the_image(drawn):
    (images, labels), masks = drawn
    assert np.bincount(labels).tolist() == 10 * [6]
    lines = np.array(list(LINES.values()))[labels]
    there = masks.kinds >= 0
    np.testing.assert_array_equal(there.sum(axis=1), lines)
    np.testing.assert_array_equal(masks.parts.any(axis=(2, 3)), there)
    np.testing.assert_array_equal(np.isfinite(masks.centres[..., 0]), there)
    assert masks.parts.sum(axis=1).max() == 1
    inside = images[masks.object[..., np.newaxis]]
    assert inside.min() >= 0.25 * 255 and images.max(axis=(1, 2, 3)).min() > 126
    # Half a broad line at most is cut off.
    border = images[:, [0, -1]].max(axis=(1, 2, 3)) > 0
    assert border.mean() < 0.2


def test_kinds_are_the_directions_of_the_upright_letter(drawn):
    (_, labels), masks = drawn
    names = np.array(masks.kind_names)
    expected = {"F": "stem bar bar", "N": "stem fall stem", "X": "rise fall"}
    for letter, kinds in expected.items():
        own = masks.kinds[labels == list(LINES).index(letter)]
        for each in own:
            assert names[each[each >= 0]].tolist() == kinds.split()
    assert names[masks.kinds[labels == 0][0, :3]].tolist() == [
        "steep rise",
        "steep fall",
        "bar",
    ]


def test_lines_lie_where_their_centres_are(drawn):
    (_, labels), masks = drawn
    grid = np.indices((100, 100))
    for n, k in np.argwhere(masks.kinds >= 0):
        if labels[n] == 8:
            continue  # the lines of X share their middle
        where = grid[:, masks.parts[n, k]].mean(axis=1)
        assert np.linalg.norm(where - masks.centres[n, k]) < 3.0


def test_it_is_loaded_by_name_with_masks_of_test_images():
    data = load("syndacate", None, 0.25, seed=1)
    assert data.image_shape == (100, 100, 1)
    assert "".join(data.class_names) == "AEFILMNWXZ"
    assert len(data.masks.parts) == len(data.test.labels)

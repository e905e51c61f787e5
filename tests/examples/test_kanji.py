"""Kanji of components: their choice, how they are read and drawn."""

from importlib import metadata

import numpy as np
import pytest
from scipy import ndimage

from cli import UserError
from examples.kanji import data
from tests.refusals import assert_user_error
from tests.training.datasets.test_drawn import assert_drawn_by_seed

_HEAD = """<?xml version="1.0"?>
<!DOCTYPE svg [<!ATTLIST g xmlns:kvg CDATA #FIXED "http://kanjivg.tagaini.net">
]>
<svg xmlns="http://www.w3.org/2000/svg"
xmlns:kvg="https://kanjivg.tagaini.net/"><g>"""


def group(*within, position=None, element=None):
    named = f'kvg:position="{position}"' if position else ""
    named += f' kvg:element="{element}"' if element else ""
    return f"<g {named}>{''.join(within)}</g>"


def stroke(x, y):
    return f'<path d="M{x},{y}c10,0,20,0,30,0"/>'


@pytest.fixture
def folder(tmp_path):
    """A character of a tree beside a stone that stands on a heart."""
    drawn = group(
        group(stroke(5, 20), stroke(5, 80), position="left", element="木"),
        group(
            group(stroke(60, 20), position="top", element="石"),
            group(stroke(60, 80), position="bottom", element="心"),
            position="right",
        ),
        element="一",
    )
    (tmp_path / "04e00.svg").write_text(f"{_HEAD}{drawn}</g></svg>", "utf-8")
    wrong = group(stroke(5, 20), position="left", element="龠")
    other = f"{_HEAD}{group(wrong, element='二')}</g></svg>"
    (tmp_path / "04e8c.svg").write_text(other, "utf-8")
    return tmp_path


@pytest.fixture(scope="module")
def characters():
    if not [*metadata.distributions(name="kanjivg")]:
        pytest.skip("the package kanjivg is not installed (extra kanji)")
    return [data.read(character) for character in data.CHARACTERS]


def test_a_character_is_read_with_its_tree(folder):
    character = data.read("一", folder)
    assert character.name == "tree (stone / heart)"
    names = list(data.COMPONENTS.values())
    found = [names[kind] for kind in character.kinds]
    assert found == ["tree", "stone", "heart"]
    assert character.owners == (0, 0, 1, 2)
    np.testing.assert_allclose(character.strokes[1][0], (80, 5))
    np.testing.assert_allclose(character.strokes[1][-1], (80, 35))


def test_paths_are_curves_of_cubic_splines():
    def points(path):
        (node,) = data.ElementTree.fromstring(f'<g><path d="{path}"/></g>')
        return data._points(node)

    # In the middle of a cubic: (a + 3 b + 3 c + d) / 8.
    curve = points("M10,20c0,8,8.5.5,16,8")
    assert np.abs(curve - (24.1875, 15.1875)).sum(axis=1).min() < 0.5
    np.testing.assert_allclose(curve[-1], (28, 26))
    steps = np.linalg.norm(np.diff(curve, axis=0), axis=1)
    assert 0 < steps.min() and steps.max() < 2.0
    for same in ("M10,20C10,28,18.5,20.5,26,28", "m10 20c0 8 8.5 0.5 16 8"):
        np.testing.assert_allclose(points(same), curve)
    smooth = points("M0,0c0,3,1,6,3,6s6-3,6-6")
    for same in ("M0,0C0,3,1,6,3,6C5,6,9,3,9,0", "M0,0C0,3,1,6,3,6S9,3,9,0"):
        np.testing.assert_allclose(points(same), smooth, atol=1e-12)
    for wrong in ("M0,0L5,5", "M0,0c1,1,2,2", "M0,0", ""):
        assert_user_error("^a stroke of KanjiVG must", points, wrong)


def test_masks_are_boxes_and_of_one_component_each(folder):
    (images, labels), masks = data.draw(40, 1, "一", folder)
    assert images.shape == (40, 48, 48, 1) and not labels.any()
    assert masks.parts.shape == (40, 3, 48, 48) and masks.loose is None
    assert masks.kind_names == (*data.COMPONENTS.values(),)
    assert masks.parts.sum(axis=1).max() == 1
    tree, stone, heart = (
        np.array([ndimage.center_of_mass(mask) for mask in masks.parts[:, k]])
        for k in range(3)
    )
    assert np.all(tree[:, 1] + 10 < stone[:, 1])
    assert np.all(stone[:, 0] + 10 < heart[:, 0])
    # Of the tree, what is between its strokes, too.
    assert masks.parts.sum(axis=(2, 3))[:, 0].min() > 150


def test_what_cannot_be_read_is_named(folder, monkeypatch):
    with pytest.raises(UserError, match="二 must consist of the 30 components"):
        data.read("二", folder)
    assert_user_error(
        "KanjiVG has no 三; there is no ", data.read, "三", folder
    )

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert_user_error(r'run pip install "tfcaps\[kanji\]"', data.read, "仔")


def test_components_are_in_many_characters(characters):
    assert len({character.name for character in characters}) == 100
    kinds = [k for character in characters for k in set(character.kinds)]
    counts = np.bincount(kinds)
    assert len(counts) == len(data.COMPONENTS) == 30 and counts.min() >= 3
    assert {len(character.kinds) for character in characters} == {2, 3}


def test_unseen_characters_are_new_arrangements_of_the_same(characters):
    assert not set(data.UNSEEN) & set(data.CHARACTERS)
    assert len(set(data.UNSEEN)) == len(data.UNSEEN) >= 20
    new = [data.read(character) for character in data.UNSEEN]
    names = {character.name for character in (*characters, *new)}
    assert len(names) == len(characters) + len(new)

    (_, labels), masks = data.draw(2 * len(new), 33, data.UNSEEN)
    assert np.bincount(labels).tolist() == [2] * len(new)
    for label, kinds in zip(labels, masks.kinds, strict=True):
        assert tuple(kinds[kinds >= 0]) == new[label].kinds


@pytest.mark.slow
def test_what_is_drawn_depends_on_the_seed_alone(characters):
    assert_drawn_by_seed(data, 3860097189)

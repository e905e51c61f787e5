"""Names of users, drawn: formulas, other alphabets, long and empty ones."""

import numpy as np
import pytest
from matplotlib.text import Text

from tests.viz.test_named_tree import NAMED, draw
from tests.viz.test_tree_fields import explained
from tfcaps import rem, viz
from tfcaps.viz import letters


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("5$_$10", "5$_$10"),
        ("a\nb\t c", "a b c"),
        ("", "(no name)"),
        (" \u200b\x07", "(no name)"),
        ("caf\u0065\u0301", "café"),
        ("a\udcff", "a?"),
        ("x" * 400 + "yz", "x" * 18 + "..." + "x" * 16 + "yz"),
        ("Αλφα Ж", "Αλφα Ж"),
    ],
)
def test_names_become_one_line_that_can_be_drawn(name, expected):
    assert letters.one_line(name) == expected


NAMES = ["5$_$10", "a\n$\\frac$", "", "x" * 300, "50% $", "_{^}$", "~ \\ $$ #"]


def drawings():
    """Draws each figure with names that are hard to draw."""
    dictionary = rem.CouplingDictionary(3)
    dictionary.update(np.array([[10, 0, 3], [0, 10, 3]]), np.array([0, 1]))
    tree = rem.ParseTree(
        (np.ones(4), np.ones(3)), (0, 1, 2), (np.full((4, 3), 0.9),)
    )
    called = {"class_names": NAMES}
    named = {**NAMED, "class_names": NAMES, "type_names": NAMES}
    yield draw(**named, name=NAMES[0])
    images = np.zeros((1, 6, 6, 1))
    why = explained([2, 7], [0.9, 0.8], **called)
    yield viz.tree_fields(why, titles=NAMES[:1])
    yield viz.parse_tree(dict.fromkeys(NAMES, tree), **called)
    yield viz.keys_per_class({NAMES[0]: dictionary}, **called)
    shown = {"lengths": np.eye(3)[:1], "classes": [0]}
    maps = {NAMES[1]: {**shown, "saliency": np.zeros((1, 6, 6))}}
    yield viz.saliency(images, maps, labels=[1], **called)
    rows = [
        {"model": NAMES[0], "epoch": k, "entropy_bits": 1.0} for k in (0, 1)
    ]
    yield viz.curves(rows)


def test_no_name_breaks_a_figure(tmp_path):
    for k, drawing in enumerate(drawings()):
        drawing.save(tmp_path / str(k))
        # Numbers of an axis may be formulas; nobody named them.
        for text in drawing.findobj(Text):
            assert "\n$" not in text.get_text()
            assert not ("$" in text.get_text() and text.get_parse_math())

"""Names that left `tfcaps.rem` work for one release, and say where they are."""

import pytest

from tfcaps import rem
from tfcaps.rem.deprecated import MOVED


@pytest.mark.parametrize("name", MOVED)
def test_a_name_that_moved_is_found_with_a_warning(name):
    with pytest.warns(DeprecationWarning, match=f"rem.{name}` will go with"):
        value = getattr(rem, name)
    assert value.__name__ == name and value.__module__ == MOVED[name]


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("sample_keys", r"Use `tfcaps.rem.trees\(...\).c"),
        ("ParseTrees", "Use `tfcaps.rem.trees"),
        ("tree_fields", "Use `tfcaps.viz.tree_fields"),
        ("grad_cam", "Use the package Xplique"),
        ("nothing", "no attribute 'nothing'"),
    ],
)
def test_a_name_that_is_gone_says_what_to_use(name, instead):
    with pytest.raises(AttributeError, match=instead):
        getattr(rem, name)


def test_there_are_at_most_32_public_names_and_none_of_them_moved():
    assert len(rem.__all__) <= 32
    assert not {*rem.__all__} & {*MOVED}

"""Names that left `tfcaps.rem` work for one release, and say where they are."""

import pytest

from tfcaps import rem
from tfcaps.rem.deprecated import MOVED


@pytest.mark.parametrize("name", MOVED)
def test_a_name_that_moved_is_found_with_a_warning(name):
    with pytest.warns(DeprecationWarning, match=f"rem.{name}` will go with"):
        value = getattr(rem, name)
    assert value.__name__ == name and value.__module__ == MOVED[name]


def test_a_name_that_never_was_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rem.nothing  # noqa: B018


def test_there_are_at_most_32_public_names_and_none_of_them_moved():
    assert len(rem.__all__) <= 32
    assert not {*rem.__all__} & {*MOVED}

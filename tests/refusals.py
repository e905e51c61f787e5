"""Tables of calls that are refused, and of what their errors say."""

import re
from functools import partial

import pytest

from cli import UserError


def refusals(table, **names):
    """Returns what gives a test the calls of a table, and what they must say.

    Args:
        table: Lines of calls. Below one or more of them, indented, stands what
            the error of each of them must say.
        **names: What the calls may name.
    """
    rows, calls, said = [], [], []
    for line in [*table.strip().splitlines(), "the end"]:
        if line.startswith(" "):
            said.append(line.strip())
            continue
        if said:
            text = " ".join(said)
            rows += [
                pytest.param(partial(eval, call, names), text, id=call)
                for call in calls
            ]
            calls, said = [], []
        calls.append(line)
    return pytest.mark.parametrize(("call", "said"), rows)


def assert_refused(call, said):
    """Checks that a call ends in a `ValueError` that says so."""
    with pytest.raises(ValueError, match=re.escape(said)):
        call()


def refused(table, **names):
    """Returns a test in which each call of a table is refused so."""

    def test(call, said):
        assert_refused(call, said)

    return refusals(table, **names)(test)


def assert_user_error(match, call, *arguments, **options):
    """Checks that a call ends in a `UserError` that matches."""
    with pytest.raises(UserError, match=match):
        call(*arguments, **options)

"""How far answers may be from those that are expected."""

import numpy as np
import pytest

from cli import UserError
from export import reference
from tests.tolerance import SUMS


@pytest.fixture
def expected(rng):
    return {
        "classes": np.array([2, 0]),
        "lengths": np.array([[0.1, 0.2, 0.9], [0.8, 0.1, 0.2]], "float32"),
        "couplings": rng.random((2, 5), dtype=np.float32),
    }


def compare(expected, name, added, *, rounded=False):
    came = {key: value.copy() for key, value in expected.items()}
    came[name][1] += came[name].dtype.type(added)
    pairs = iter([(expected, came)])
    return reference.compare("parity", pairs, rounded=rounded)


def test_couplings_may_be_farther_off_than_other_answers(expected):
    assert compare(expected, "lengths", 0) == 0
    assert compare(expected, "lengths", 5e-6) == pytest.approx(5e-6, abs=SUMS)
    found = compare(expected, "couplings", 5e-5)
    assert found == pytest.approx(5e-5, abs=SUMS)
    for name, added in (("lengths", 5e-5), ("couplings", 2e-4)):
        with pytest.raises(UserError, match="more than 1e-05, or 0.0001 of"):
            compare(expected, name, added)


@pytest.mark.parametrize("name", ["lengths", "couplings"])
def test_what_is_not_a_number_is_refused(expected, name):
    with pytest.raises(UserError, match="an answer differs by nan"):
        compare(expected, name, np.nan)


def test_another_class_is_refused_and_a_rounded_coupling_is_not(expected):
    with pytest.raises(UserError, match="differs by inf"):
        compare(expected, "classes", 1)
    assert compare(expected, "couplings", 0.1, rounded=True) == 0

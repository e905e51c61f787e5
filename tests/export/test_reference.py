"""Answers compared with those of the reference: which are near enough."""

import numpy as np
import pytest
import tensorflow  # noqa: F401 (on JAX conftest.py leaves this file out)

from cli import UserError
from export import reference


def answers(lengths, couplings):
    lengths = np.array(lengths, "float32")
    return {
        "lengths": lengths,
        "classes": np.argmax(lengths, axis=-1),
        "couplings": np.array(couplings, "float32"),
    }


def test_either_of_two_equal_classes_is_right():
    expected = answers([[0.5, 0.500001]], [[0.1]])
    came = answers([[0.500001, 0.5]], [[0.9]])
    reference.compare("parity", iter([(expected, came)]), rounded=False)


def test_another_class_is_wrong():
    expected = answers([[0.5, 0.6]], [[0.1]])
    came = {**expected, "classes": np.array([0])}
    with pytest.raises(UserError, match="parity: an answer differs"):
        reference.compare("parity", iter([(expected, came)]), rounded=False)


def test_missing_outputs_are_wrong():
    expected = answers([[0.5, 0.6]], [[0.1]])
    came = {"lengths": expected["lengths"]}
    with pytest.raises(UserError, match="parity: the outputs have other names"):
        reference.compare("parity", iter([(expected, came)]), rounded=False)


def test_few_rounded_couplings_may_fall_on_the_other_side():
    expected = answers([[0.5, 0.6]] * 4, [[0.1]] * 4)
    for rows, passes in ((2, True), (3, False)):
        came = {**expected, "couplings": expected["couplings"].copy()}
        came["couplings"][:rows] = 0.2
        pairs = [(expected, came)]
        if passes:
            reference.compare("parity", iter(pairs), rounded=True)
        else:
            with pytest.raises(UserError, match="parity"):
                reference.compare("parity", iter(pairs), rounded=True)
        with pytest.raises(UserError, match="parity"):
            reference.compare("parity", iter(pairs), rounded=False)

"""How far two computations of the same numbers may be apart."""

import numpy as np

from tfcaps.export.tolerance import rounding

# Of what the small networks of the tests compute: sums of numbers of size 1, at
# most so many terms one after the other.
SUMS = rounding(64)


def assert_close(actual, expected, atol=SUMS, rtol=1e-7, err_msg=""):
    """Checks one array, to the rounding of small sums unless told more."""
    np.testing.assert_allclose(actual, expected, rtol, atol, err_msg=err_msg)


def assert_all_close(actual, expected, atol=SUMS, rtol=1e-7):
    """Checks as many arrays as are expected, one by one."""
    for array, wanted in zip(actual, expected, strict=True):
        np.testing.assert_allclose(array, wanted, rtol, atol)


def assert_all_equal(actual, expected):
    """Checks as many arrays as are expected, each of the same numbers."""
    for array, wanted in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(array, wanted)

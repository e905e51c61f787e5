"""How far two computations of the same numbers may be apart."""

import numpy as np

# The distance of 1 from the next number; rounding changes a number by half of
# that at most, relative to its size.
_EPS = {name: float(np.finfo(name).eps) for name in ("float32", "float64")}
# Of a normal distribution, 1 in 16,000 lies farther out.
_DEVIATIONS = 4.0


def rounding(terms, magnitude=1.0, dtype="float32"):
    """Returns the tolerance for sums that are added up in any order.

    Which order, and whether a product is rounded before it is added, is the
    processor's affair. Each term adds an error of at most half an eps of the
    size of the sum so far, errors of either sign, so that those of `terms` grow
    as its root.

    Args:
        terms: Int. How many numbers are added up, one sum after the other: of a
            sum of 24 that goes into three further sums of 24, 96.
        magnitude: Float. How large the sums are. Defaults to `1.0`.
        dtype: Type of the computation. Defaults to `"float32"`.
    """
    return _DEVIATIONS * np.sqrt(terms) * _EPS[dtype] * magnitude


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

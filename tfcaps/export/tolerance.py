"""How far two computations of the same numbers may be apart."""

import math

import keras
import numpy as np

# The distance of 1 from the next number; rounding changes a number by half of
# that at most, relative to its size.
_EPS = {"float64": 2**-52, "float32": 2**-23, "float16": 2**-10}
_EPS["bfloat16"] = 2**-7
# Of a normal distribution, 1 in 16,000 lies farther out.
_DEVIATIONS = 4.0
# Exponentials, roots and quotients are no sums, and round too.
_LEAST = 1e-5


def rounding(
    terms: float, magnitude: float = 1.0, dtype: str = "float32"
) -> float:
    """Returns the tolerance for sums of `terms` numbers, added in any order.

    Each term adds an error of at most half an eps of the size of the sum so
    far, `magnitude`, of either sign, so that errors grow as the root of the
    terms. Of sums that go into further sums all terms count.
    """
    return float(_DEVIATIONS * np.sqrt(terms) * _EPS[dtype] * magnitude)


def tolerance_of(model: keras.Model) -> float:
    """Returns how far outputs of a network of size 1 may be apart.

    Sums over the axes of each kernel but its last are added up in float32.
    Between layers numbers are rounded to the types in which these compute.
    """
    kernels = [w.shape[:-1] for w in model.weights if len(w.shape) > 1]
    tolerance = max(rounding(sum(map(math.prod, kernels))), _LEAST)
    types = [layer.compute_dtype for layer in model._flatten_layers()]
    for dtype in {*types} & {"float16", "bfloat16"}:
        tolerance += rounding(types.count(dtype), dtype=dtype)
    return tolerance

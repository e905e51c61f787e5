"""How far two computations of the same numbers may be apart."""

import math

import keras
import numpy as np

from tfcaps.graphs import Call, calls_of
from tfcaps.rem.multiply_adds import UnknownSizeError, of_layer

# The distance of 1 from the next number; rounding changes a number by half of
# that at most, relative to its size.
_EPS = {"float64": 2**-52, "float32": 2**-23, "float16": 2**-10}
_EPS["bfloat16"] = 2**-7
# Of a normal distribution, 1 in 16,000 lies farther out.
_DEVIATIONS = 4.0
# Exponentials, roots and quotients are no sums, and round too.
_LEAST = 1e-5


def rounding(terms: float, dtype: str = "float32") -> float:
    """Returns the tolerance for sums of `terms` numbers, added in any order.

    Each term adds an error of at most half an eps of the size of the sum so
    far, of either sign, so that errors grow as the root of the terms. Of sums
    that go into further sums all terms count.
    """
    return float(_DEVIATIONS * np.sqrt(terms) * _EPS[dtype])


def tolerance_of(model: keras.Model) -> float:
    """Returns how far outputs of a network of size 1 may be apart.

    The rule: for each number that a layer makes it adds up as many numbers as
    it has multiply-adds for it, in float32, see `tfcaps.rem.multiply_adds`.
    Between layers they are rounded to the types in which these compute.
    """
    terms = sum(map(_terms, calls_of(model)[1]))
    tolerance = max(rounding(terms), _LEAST)
    types = [layer.compute_dtype for layer in model._flatten_layers()]
    for dtype in {*types} & {"float16", "bfloat16"}:
        tolerance += rounding(types.count(dtype), dtype)
    return tolerance


def _terms(call: Call) -> float:
    """Returns how many numbers are added up for each that a call makes."""
    try:
        count = of_layer(call.layer, tuple(call.inputs[0].shape))
    except (UnknownSizeError, IndexError):  # of images of any size, of none
        count = None
    if count is not None:
        return count / math.prod(call.outputs[0].shape[1:])
    # Of a size or a kind that is not known: the rows of its kernels.
    kernels = [w.shape for w in getattr(call.layer, "weights", ())]
    return sum(math.prod(shape[:-1]) for shape in kernels if shape[1:])

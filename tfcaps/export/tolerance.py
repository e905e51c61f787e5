"""How far two computations of the same numbers may be apart."""

import math
from typing import Any

import keras
import numpy as np

from tfcaps.graphs import calls_of, inner_model
from tfcaps.rem.multiply_adds import of_layer

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
    """Returns the tolerance for sums that are added up in any order.

    Which order, and whether a product is rounded before it is added, is the
    processor's affair. Each term adds an error of at most half an eps of the
    size of the sum so far, errors of either sign, so that those of `terms` grow
    as its root.

    Args:
        terms: How many numbers are added up, one sum after the other: of a sum
            of 24 that goes into three further sums of 24, 96.
        magnitude: Float. How large the sums are. Defaults to `1.0`.
        dtype: Type of the computation. Defaults to `"float32"`.
    """
    return float(_DEVIATIONS * np.sqrt(terms) * _EPS[dtype] * magnitude)


def tolerance_of(model: keras.Model) -> float:
    """Returns how far outputs of a network of size 1 may be apart.

    Sums are added up in float32. Between layers numbers are rounded to the
    types in which these compute.
    """
    types = [_coarsest(call.layer) for call in calls_of(model)[1]]
    tolerance = max(rounding(_terms(model)), _LEAST)
    for dtype in {*types} & {"float16", "bfloat16"}:
        tolerance += rounding(types.count(dtype), dtype=dtype)
    return tolerance


def _coarsest(layer: Any) -> str:
    """Returns the type with the largest eps in which a layer computes."""
    parts = [layer, *getattr(layer, "_flatten_layers", list)()]
    types = [getattr(part, "compute_dtype", None) for part in parts]
    known = [dtype for dtype in types if dtype in _EPS]
    return max(known, key=lambda dtype: _EPS[dtype], default="float32")


def _terms(model: Any, inputs: Any = None) -> float:
    """Returns the length of all sums of a network, one after the other."""
    terms = 0.0
    for layer, taken, made, _ in calls_of(model, inputs)[1]:
        for part in getattr(layer, "equivalent_layers", [layer]):
            if (inner := inner_model(part)) is not None:
                is_sized = None not in inner.inputs[0].shape[1:]
                terms += _terms(inner, None if is_sized else taken)
                continue
            count = of_layer(part, tuple(taken[0].shape)) if taken else 0
            if count is None:  # of a kind that is not known
                kernels = [w.shape for w in part.weights if len(w.shape) > 1]
                terms += sum(math.prod(shape[:-1]) for shape in kernels)
            elif count:
                terms += count / math.prod(made[0].shape[1:])
    return terms

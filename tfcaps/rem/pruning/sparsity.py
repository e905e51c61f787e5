"""Counts the share of a model's parameters that is zero."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps.graphs import keep_pruned
from tfcaps.rem.pruning.masks import target_variables

# What sparsity is a share of.
SCOPES = ("targets", "paper", "all")


def sparsity(
    model: keras.Model,
    *,
    scope: str = "targets",
) -> float:
    """Returns the share of zeros among a model's parameters.

    Args:
        model: A built `keras.Model`.
        scope: `"targets"` counts the weights that pruning can touch, `"paper"`
            all parameters of the layers that have such a weight, biases too but
            neither normalisation nor decoder, as the REM paper does, and
            `"all"` every parameter of the model, a decoder's too (see
            `encoder`). Defaults to `"targets"`.

    Returns:
        Float in [0, 1].

    Raises:
        ValueError: If an argument is unknown, or the model has no such weight.
    """
    if scope not in SCOPES:
        raise ValueError(
            f"`scope` must be one of {SCOPES}. Received: scope={scope!r}."
        )
    keep_pruned(model)
    variables = list(model.weights)
    if scope != "all":
        pruned = target_variables(variables)
        variables = pruned if scope == "targets" else _beside(pruned, variables)
    nonzero, total = count_parameters(variables)
    if not total:
        raise ValueError(f"The model {model.name!r} has no parameters.")
    return 1.0 - nonzero / total


def count_parameters(variables: Iterable[Any]) -> tuple[int, int]:
    """Returns the numbers of parameters that are not zero, and of all."""
    arrays = [ops.convert_to_numpy(variable) for variable in variables]
    nonzero = sum(int(np.count_nonzero(array)) for array in arrays)
    return nonzero, sum(array.size for array in arrays)


def _beside(pruned: Sequence[Any], variables: Iterable[Any]) -> list[Any]:
    """Returns the variables of layers that have one of the pruned weights.

    A layer may have it in a convolution of its own, and a bias itself.
    """
    layers = set()
    for variable in pruned:
        path = _layer(variable)
        while path:
            layers.add(path)
            path = path.rpartition("/")[0]
    return [v for v in variables if _layer(v) in layers]


def _layer(variable: Any) -> str:
    """Returns the path of the layer that made a variable."""
    return str(variable.path).rpartition("/")[0]

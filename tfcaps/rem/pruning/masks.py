"""The weights that can be pruned, the masks of survivors, and their share."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps.graphs import check_unquantized, keep_pruned
from tfcaps.ops import check_one_of

# Group -> name that its variables carry in Keras' and in our layers.
_VARIABLE_NAMES = {"transformations": "transformation", "kernels": "kernel"}

# What `--rem` prunes: never biases, never normalisation.
DEFAULT_TARGETS = ("transformations", "kernels")

Weights = NDArray[np.floating]
Mask = NDArray[np.bool_]


def check_targets(targets: str | Sequence[str]) -> tuple[str, ...]:
    """Returns `targets` as a tuple of known groups, of which there is one."""
    groups = (targets,) if isinstance(targets, str) else tuple(targets)
    if not groups or not set(groups) <= set(_VARIABLE_NAMES):
        raise ValueError(
            f"`targets` must name groups out of {sorted(_VARIABLE_NAMES)}. "
            f"Received: targets={targets!r}."
        )
    return groups


def check_scope(scope: str, known: Sequence[str] = ("tensor", "global")) -> str:
    """Returns `scope`, which must be one of those that are known."""
    check_one_of(known, scope=scope)
    return scope


def is_target(
    variable: Any, targets: tuple[str, ...] = DEFAULT_TARGETS
) -> bool:
    """Tells whether a Keras variable belongs to one of the groups.

    A layer such as `Decoder` sets `prunable` of its weights to `False`.
    """
    names = [_VARIABLE_NAMES[group] for group in targets]
    return variable.name in names and getattr(variable, "prunable", True)


def target_variables(variables: Iterable[Any]) -> list[Any]:
    """Returns the variables that are pruned, of which there is at least one."""
    chosen = [variable for variable in variables if is_target(variable)]
    if not chosen:
        raise ValueError(
            "The model has no trainable kernel and no transformation that "
            "could be pruned. Build the model first."
        )
    return chosen


def prunable_weights(model: keras.Model) -> list[Any]:
    """Returns the weights of a model that are pruned while it trains."""
    check_unquantized(model)
    return target_variables(model.trainable_variables)


def magnitude_threshold(magnitudes: Weights, sparsity: float) -> np.floating:
    """Returns the smallest magnitude that survives, by tfmot's rules.

    `keep = max(round(size * (1 - sparsity)), 1)` is in float32.
    """
    flat = magnitudes.ravel()
    share = np.float32(1.0) - np.float32(sparsity)
    keep = max(int(np.round(np.float32(flat.size) * share)), 1)
    position = flat.size - keep
    threshold: np.floating = np.partition(flat, position)[position]
    return threshold


def magnitude_masks(
    weights: Sequence[Weights], sparsity: float, *, scope: str = "tensor"
) -> list[Mask]:
    """Returns the masks (True keeps) that prune the smallest magnitudes.

    All magnitudes equal to the threshold survive, so that with ties the
    sparsity reached can fall short of `sparsity`; at least one weight survives.
    `scope` is as in `prune_low_magnitude`.
    """
    if not 0.0 <= sparsity <= 1.0:
        raise ValueError(
            f"`sparsity` must be in [0, 1]. Received: sparsity={sparsity}. "
            "Check the pruning schedule."
        )
    magnitudes = [np.abs(array) for array in weights]
    if scope == "tensor":
        return [m >= magnitude_threshold(m, sparsity) for m in magnitudes]
    together = np.concatenate([m.ravel() for m in magnitudes])
    threshold = magnitude_threshold(together, sparsity)
    return [m >= threshold for m in magnitudes]


def saliency_masks(
    saliencies: Sequence[Weights], sparsity: float
) -> list[Mask]:
    """Returns the masks (True keeps) of the highest saliencies of all arrays.

    Exactly `round(size * (1 - sparsity))` are kept, of equal ones the first,
    since whole tensors can have the saliency 0. A tensor none of whose weights
    would be left keeps its most salient one, so that no layer is cut off.
    """
    together = np.concatenate([s.ravel() for s in saliencies])
    keep = max(round(together.size * (1.0 - sparsity)), 1)
    flat = np.zeros(together.size, dtype=bool)
    flat[np.argsort(-together, kind="stable")[:keep]] = True
    parts = np.split(flat, np.cumsum([s.size for s in saliencies])[:-1])
    masks = []
    for part, saliency in zip(parts, saliencies, strict=True):
        if not part.any():
            part[np.argmax(saliency)] = True
        masks.append(part.reshape(saliency.shape))
    return masks


def sparsity(model: keras.Model, *, scope: str = "targets") -> float:
    """Returns the share of zeros among a model's parameters.

    Args:
        model: A built `keras.Model`.
        scope: `"targets"` counts the weights that pruning can touch, `"paper"`
            all parameters of the layers that have such a weight, biases too but
            neither normalisation nor decoder, as the REM paper does, and
            `"all"` every parameter of the model, a decoder's too (see
            `classifier`). Defaults to `"targets"`.

    Returns:
        Float in [0, 1].

    Raises:
        ValueError: If an argument is unknown, or the model has no such weight.
    """
    check_scope(scope, ("targets", "paper", "all"))
    check_unquantized(model)
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
    """Returns the variables of layers that have one of the pruned weights."""
    layers = set()
    for variable in pruned:
        path = variable.path
        while path := path.rpartition("/")[0]:
            layers.add(path)
    return [v for v in variables if v.path.rpartition("/")[0] in layers]

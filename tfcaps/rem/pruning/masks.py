"""The weights that can be pruned, and the masks of those that survive."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Group -> name that its variables carry in Keras' and in our layers.
_VARIABLE_NAMES = {"transformations": "transformation", "kernels": "kernel"}

# What `--rem` prunes: never biases, never normalisation.
DEFAULT_TARGETS = ("transformations", "kernels")
SCOPES = ("tensor", "global")

Weights = NDArray[np.floating]
Mask = NDArray[np.bool_]


def check_targets(targets: str | Sequence[str]) -> tuple[str, ...]:
    """Returns `targets` as a tuple of known groups.

    Raises:
        ValueError: If a group is unknown or there is none.
    """
    groups = (targets,) if isinstance(targets, str) else tuple(targets)
    unknown = [group for group in groups if group not in _VARIABLE_NAMES]
    if unknown or not groups:
        raise ValueError(
            f"`targets` must name groups out of {sorted(_VARIABLE_NAMES)}. "
            f"Received: targets={targets!r}."
        )
    return groups


def is_target(
    variable: Any, targets: tuple[str, ...] = DEFAULT_TARGETS
) -> bool:
    """Tells whether a Keras variable belongs to one of the groups.

    A layer that must not be pruned, such as `Decoder`, sets `prunable` of its
    weights to `False`.
    """
    if not getattr(variable, "prunable", True):
        return False
    return any(variable.name == _VARIABLE_NAMES[group] for group in targets)


def target_variables(variables: Iterable[Any]) -> list[Any]:
    """Returns the variables that are pruned.

    Raises:
        ValueError: If there is none.
    """
    chosen = [variable for variable in variables if is_target(variable)]
    if not chosen:
        raise ValueError(
            "The model has no trainable kernel and no transformation that "
            "could be pruned. Build the model first."
        )
    return chosen


def magnitude_threshold(magnitudes: Weights, sparsity: float) -> np.floating:
    """Returns the smallest magnitude that survives.

    `keep = max(round(size * (1 - sparsity)), 1)` in float32, halves to the even
    number; the threshold is the keep-th largest magnitude. These are tfmot's
    rules.
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

    Args:
        weights: Arrays of any shapes.
        sparsity: Float in [0, 1]. Share of weights to prune.
        scope: `"tensor"` prunes the same share of each array, `"global"` takes
            one threshold for all of them. Defaults to `"tensor"`.

    Returns:
        A list of boolean arrays of the same shapes.

    Raises:
        ValueError: If `sparsity` is outside [0, 1] or `scope` is unknown.
    """
    if not 0.0 <= sparsity <= 1.0:
        raise ValueError(
            f"`sparsity` must be in [0, 1]. Received: sparsity={sparsity}. "
            "Check the pruning schedule."
        )
    check_scope(scope)
    magnitudes = [np.abs(array) for array in weights]
    if scope == "tensor":
        thresholds = [magnitude_threshold(m, sparsity) for m in magnitudes]
    else:
        together = np.concatenate([m.ravel() for m in magnitudes])
        thresholds = [magnitude_threshold(together, sparsity)] * len(magnitudes)
    return [m >= t for m, t in zip(magnitudes, thresholds, strict=True)]


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
    for part, saliency in zip(parts, saliencies, strict=True):
        if not part.any():
            part[np.argmax(saliency)] = True
    return [
        part.reshape(saliency.shape)
        for part, saliency in zip(parts, saliencies, strict=True)
    ]


def check_scope(scope: str) -> None:
    """Raises `ValueError` if `scope` is unknown."""
    if scope not in SCOPES:
        raise ValueError(
            f"`scope` must be one of {SCOPES}. Received: scope={scope!r}."
        )

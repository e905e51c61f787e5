"""Selects the weights of a model that are pruned and decayed."""

from collections.abc import Iterable, Sequence
from typing import Any

# Group -> name that its variables carry in Keras' and in our layers.
_VARIABLE_NAMES = {"transformations": "transformation", "kernels": "kernel"}

# What `--rem` prunes: never biases, never normalisation.
DEFAULT_TARGETS = ("transformations", "kernels")


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


def is_target(variable: Any, targets: tuple[str, ...]) -> bool:
    """Tells whether a Keras variable belongs to one of the groups.

    A layer that must not be pruned, such as `Decoder`, sets `prunable` of its
    weights to `False`.
    """
    if not getattr(variable, "prunable", True):
        return False
    return any(variable.name == _VARIABLE_NAMES[group] for group in targets)


def target_variables(
    variables: Iterable[Any], targets: str | Sequence[str]
) -> list[Any]:
    """Returns the variables that belong to one of the groups.

    Raises:
        ValueError: If a group is unknown, or no variable belongs to any.
    """
    groups = check_targets(targets)
    chosen = [variable for variable in variables if is_target(variable, groups)]
    if not chosen:
        raise ValueError(
            f"The model has no trainable variable in the groups {groups}. "
            "Build the model first, or choose other `targets`."
        )
    return chosen

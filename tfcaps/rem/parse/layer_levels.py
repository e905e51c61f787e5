"""Assigns a number of coupling levels to each routed layer."""

from collections.abc import Mapping, Sequence
from typing import Any

from tfcaps.ops import is_integer

# One number for all layers, one for each, or one for each that is named.
Levels = int | Sequence[int] | Mapping[str, int]


def layer_levels(
    routed: Sequence[Any], levels: Levels, *, most: int | None = None
) -> dict[str, int]:
    """Returns the levels of each layer that rounds its couplings, by its name.

    Args:
        routed: The routed layers of a model, from input to output.
        levels: An int for all layers that are quantisable; a sequence with an
            int for each of these, from input to output; or a mapping from names
            of layers to ints. Layers that a mapping does not name stay as they
            are, and one that is not quantisable, a `ConvCaps3D`, is rounded
            only if it is named.
        most: The highest number of levels, if there is one.

    Raises:
        ValueError: If a number of levels is out of range, or there are more or
            fewer numbers than layers, or a name is not that of a routed layer.
    """
    names = [r.name for r in routed if getattr(r, "quantizable", True)]
    if isinstance(levels, Mapping):
        known = [layer.name for layer in routed]
        unknown = [name for name in levels if name not in known]
        if unknown:
            raise ValueError(
                f"`levels` must name routed layers of the model, which are "
                f"{known}. Received: {unknown}."
            )
        # In the order of the layers.
        chosen = {name: levels[name] for name in known if name in levels}
    elif isinstance(levels, Sequence) and not isinstance(levels, str):
        if len(levels) != len(names):
            raise ValueError(
                "`levels` must be one number, or one for each of the "
                f"{len(names)} layers {names}. Received: "
                f"levels={tuple(levels)}."
            )
        chosen = dict(zip(names, levels, strict=True))
    else:
        chosen = dict.fromkeys(names, levels)
        _check(levels, most)  # also where no layer is quantisable
    for count in chosen.values():
        _check(count, most)
    return {name: int(count) for name, count in chosen.items()}


def _check(levels: Any, most: int | None) -> None:
    fits = is_integer(levels) and levels >= 2
    if not fits or (most is not None and levels > most):
        wanted = "at least 2" if most is None else f"in [2, {most}]"
        raise ValueError(
            f"`levels` must be {wanted}, and whole. Received: levels={levels}."
        )

"""Names that left `tfcaps.rem`: they work for one release, and warn."""

import importlib
import warnings
from typing import Any

# Where each of them is now.
MOVED = {
    "dequantize": "tfcaps.ops",
    "magnitude_masks": "tfcaps.rem.pruning.masks",
    "parse_tree": "tfcaps.rem.parse.trees",
    "part_stability": "tfcaps.rem.evaluation.named_parts",
    "saliency_masks": "tfcaps.rem.pruning.masks",
    "t_score": "tfcaps.rem.evaluation.evaluate",
}


def moved(name: str) -> Any:
    """Returns a thing that left `tfcaps.rem`, and warns where it is now.

    Raises:
        AttributeError: If there is and was no such name.
    """
    if name not in MOVED:
        raise AttributeError(f"module 'tfcaps.rem' has no attribute {name!r}")
    new = f"{MOVED[name]}.{name}"
    warnings.warn(
        f"`tfcaps.rem.{name}` will go with the next release. Use `{new}`.",
        DeprecationWarning,
        stacklevel=3,
    )
    return getattr(importlib.import_module(MOVED[name]), name)

"""Names that left `tfcaps.rem`: they work for one release, and warn."""

import importlib
import warnings
from typing import Any

# Where each of them is now.
MOVED = {
    "dequantize": "tfcaps.ops",
    "magnitude_masks": "tfcaps.rem.pruning.masks",
    "parse_tree": "tfcaps.rem.parse.parse_tree",
    "part_stability": "tfcaps.rem.evaluation.named_parts",
    "pointing": "tfcaps.rem.maps",
    "relevance_mass": "tfcaps.rem.maps",
    "saliency_map": "tfcaps.rem.maps",
    "saliency_masks": "tfcaps.rem.pruning.masks",
    "t_score": "tfcaps.rem.evaluation.evaluate",
    "type_dictionary": "tfcaps.rem.parse.dictionary",
}
# What to use instead of those that are gone.
_XPLIQUE = "the package Xplique, which has it for any network"
_GONE = {
    **dict.fromkeys(
        (
            *("MapComparison", "attribution_maps", "compare_maps", "grad_cam"),
            *("integrated_gradients", "mu_fidelity", "occlusion"),
            *("pixel_deletion", "pixel_insertion"),
        ),
        _XPLIQUE,
    ),
    "pool_types": "`tfcaps.rem.trees(...).type_codes`",
    "ParseTrees": "`tfcaps.rem.trees(...).parse_tree()`",
    "SampleKeys": "`tfcaps.rem.Trees`",
    "sample_keys": "`tfcaps.rem.trees(...).codes`",
    "TreeFields": "`tfcaps.rem.Trees`",
    **dict.fromkeys(("VoteDistances", "vote_distances"), "tfcaps 0.2.0"),
    "tree_fields": "`tfcaps.viz.tree_fields(images, trees, fields)`",
}


def moved(name: str) -> Any:
    """Returns a thing that left `tfcaps.rem`, and warns where it is now.

    Raises:
        AttributeError: If there is and was no such name.
    """
    if name in _GONE:
        raise AttributeError(f"`tfcaps.rem.{name}` is gone. Use {_GONE[name]}.")
    if name not in MOVED:
        raise AttributeError(f"module 'tfcaps.rem' has no attribute {name!r}")
    warnings.warn(
        f"`tfcaps.rem.{name}` will go with the next release. Use "
        f"`{MOVED[name]}.{name}`.",
        DeprecationWarning,
        stacklevel=3,
    )
    return getattr(importlib.import_module(MOVED[name]), name)

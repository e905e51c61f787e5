"""Names that left `tfcaps.rem`: what moved works for one release, and warns."""

import importlib
import warnings
from typing import Any

# Where each of them is now.
MOVED = {
    "dequantize": "tfcaps.ops",
    "magnitude_masks": "tfcaps.rem.pruning.masks",
    "parse_tree": "tfcaps.rem.parse.trees",
    "part_stability": "tfcaps.rem.evaluation.named_parts",
    "saliency_map": "tfcaps.rem.maps",
    "saliency_masks": "tfcaps.rem.pruning.masks",
    "t_score": "tfcaps.rem.evaluation.evaluate",
    "type_dictionary": "tfcaps.rem.parse.dictionary",
}
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
    **dict.fromkeys(("pointing", "relevance_mass"), "the package Quantus"),
    "coupling_maps": "`tfcaps.rem.maps.tree_maps(trees, fields, classes)`",
    "ParseTrees": "`tfcaps.rem.trees(...).parse_tree()`",
    "SampleKeys": "`tfcaps.rem.Trees`",
    "TreeFields": "`tfcaps.rem.Trees`",
    "VoteDistances": "`Votes.distances` of `tfcaps.routing.votes`",
    "pool_types": "`tfcaps.rem.trees(...).type_codes`",
    "sample_keys": "`tfcaps.rem.trees(...).codes`",
    "tree_fields": "`tfcaps.viz.tree_fields(images, trees, fields)`",
    "vote_distances": "`Votes.distances` of `tfcaps.routing.votes`",
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
    new = f"{MOVED[name]}.{name}"
    warnings.warn(
        f"`tfcaps.rem.{name}` will go with the next release. Use `{new}`.",
        DeprecationWarning,
        stacklevel=3,
    )
    return getattr(importlib.import_module(MOVED[name]), name)

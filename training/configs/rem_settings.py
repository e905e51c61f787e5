"""Settings of a run: routing entropy minimisation."""

import argparse
import dataclasses

import cli
from training.configs.setting import setting
from training.pruning import STRATEGIES

REM = "routing entropy minimisation"
# Groups of weights that may decay, as in `tfcaps.rem`.
TARGETS = ("transformations", "kernels")
# What structured pruning may remove, as in `tfcaps.rem`.
UNITS = ("filters", "types", "children", "components")


def _units(text: str) -> tuple[str, ...]:
    """Reads `filters,types`."""
    names = tuple(text.split(","))
    if not set(names) <= set(UNITS):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be names out of {', '.join(UNITS)}, with commas"
        )
    return names


def _levels(text: str) -> int | tuple[int, ...]:
    """Reads `11`, or `11,6` for a network of two routed layers."""
    parts = tuple(cli.number(part, int, 2, 256) for part in text.split(","))
    return parts if parts[1:] else parts[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemSettings:
    """What REM prunes, wishes of the couplings, and rounds them to."""

    rem: bool = setting(
        False, "train a REM model beside the baseline", group=REM
    )
    baseline: bool = setting(
        True,
        "train the REM model alone",
        group=REM,
        flag="no-baseline",
        off_only=True,
    )
    warm_start: bool = setting(
        False,
        "begin REM with the weights of the trained baseline, or as that one "
        "began",
        group=REM,
        both_ways=True,
        rem=True,
    )
    start_from: str | None = setting(
        None,
        "take the network that another run has trained as the baseline, and "
        "begin REM with its weights; settings that are not given are those of "
        "that run",
        group=REM,
        metavar="RUN",
        rem=True,
    )
    pruning: str = setting(
        "polynomial",
        "what is pruned when, see training/pruning/",
        choices=tuple(STRATEGIES),
        group=REM,
        rem=True,
    )
    final_sparsity: float = setting(
        0.8,
        "share of weights pruned in the end, 0 to 0.999; iterative prunes no "
        "more, but may prune less; structured removes it of --pruning-target",
        low=0.0,
        high=0.999,
        group=REM,
        metavar="SHARE",
        rem=True,
    )
    pruning_begin: float = setting(
        0.0,
        "share of the training at which pruning begins",
        low=0.0,
        high=1.0,
        rem=True,
    )
    pruning_end: float = setting(
        0.6,
        "share of the training at which the final sparsity is reached; "
        "one_shot prunes half way between the two",
        low=0.0,
        high=1.0,
        rem=True,
    )
    tolerance: float = setting(
        0.0,
        "share by which the validation loss may grow in iterative pruning",
        low=0.0,
        rem=True,
    )
    max_searches: int = setting(
        12,
        "passes over the validation images after an epoch in iterative pruning",
        low=1,
        rem=True,
    )
    search_samples: int | None = setting(
        None, "most validation images in such a pass", low=1, rem=True
    )
    min_accuracy: float = setting(
        0.0,
        "validation accuracy up to which iterative pruning prunes nothing",
        low=0.0,
        high=1.0,
        rem=True,
    )
    scope: str = setting(
        "global",
        "one threshold for all weights, or one for each tensor, see "
        "`tfcaps.rem.prune_low_magnitude`",
        choices=("global", "tensor"),
        rem=True,
    )
    pruning_units: tuple[str, ...] = setting(
        ("filters", "types"),
        f"what structured pruning removes, out of {', '.join(UNITS)}, with "
        "commas; see `tfcaps.rem.prune_structured`",
        group=REM,
        read=_units,
        metavar="NAMES",
        rem=True,
    )
    pruning_criterion: str = setting(
        "magnitude",
        "what ranks units in structured pruning",
        choices=("magnitude", "taylor", "lakp", "random"),
        group=REM,
        rem=True,
    )
    pruning_scope: str = setting(
        "layer",
        "whether structured pruning removes the same share of each layer's "
        "units, or compares them across layers",
        choices=("layer", "global"),
        group=REM,
        rem=True,
    )
    pruning_target: str = setting(
        "multiply_adds",
        "what structured pruning removes a share of",
        choices=("multiply_adds", "parameters"),
        group=REM,
        rem=True,
    )
    decay: float = setting(
        0.0,
        "rate of the paper's sensitivity-gated decay; 0 for none",
        low=0.0,
        high=1.0,
        group=REM,
        metavar="RATE",
        rem=True,
    )
    decay_power: float = setting(
        2.0,
        "how the rate of the decay falls to 0 at the end: as (1 - share of "
        "training) ** decay_power; 0 keeps it",
        low=0.0,
        rem=True,
    )
    decay_factor: float | None = setting(
        None,
        "the decay's factor from epoch to epoch instead",
        low=0.0,
        high=1.0,
        rem=True,
    )
    decay_targets: tuple[str, ...] = setting(
        ("transformations",),
        f"groups of weights that decay, out of {' and '.join(TARGETS)}",
        rem=True,
    )
    coupling_spread: float = setting(
        1.0,
        "weight of the wish for the same couplings in all images of a class, "
        "see `tfcaps.losses.CouplingLoss`; 0 for none",
        low=0.0,
        high=1e6,
        group=REM,
        metavar="WEIGHT",
        rem=True,
        before=0.0,
    )
    coupling_polarization: float = setting(
        0.6,
        "weight of the wish for couplings of 0 and 1; 0 for none",
        low=0.0,
        high=1e6,
        group=REM,
        metavar="WEIGHT",
        rem=True,
        before=0.0,
    )
    coupling_crowding: float = setting(
        2.0,
        "weight of the wish for at most --coupling-share of the children in a "
        "class's tree; 0 for none",
        low=0.0,
        high=1e6,
        group=REM,
        metavar="WEIGHT",
        rem=True,
        before=0.0,
    )
    coupling_share: float = setting(
        0.5,
        "share of the children that a class may have, 0 to 1",
        low=0.0,
        high=1.0,
        group=REM,
        metavar="SHARE",
        rem=True,
    )
    coupling_types: bool = setting(
        False,
        "compare the types of capsules in a tree, wherever they are",
        group=REM,
        rem=True,
    )
    counterfactual_necessity: float = setting(
        0.0,
        "weight of the wish that a class vanishes without its tree, see "
        "`tfcaps.losses.CounterfactualLoss`; 0 for none",
        low=0.0,
        high=1e6,
        group=REM,
        metavar="WEIGHT",
        rem=True,
    )
    counterfactual_sufficiency: float = setting(
        0.0,
        "weight of the wish that the tree alone tells the class; 0 for none",
        low=0.0,
        high=1e6,
        group=REM,
        metavar="WEIGHT",
        rem=True,
    )
    coupling_ramp: float = setting(
        1.0,
        "share of the training over which these weights grow from 0",
        low=0.0,
        high=1.0,
        group=REM,
        metavar="SHARE",
        rem=True,
        before=0.0,
    )
    levels: int | tuple[int, ...] = setting(
        11,
        "levels of the couplings, 2 to 256; or several with commas, one for "
        "each routed layer",
        low=2,
        high=256,
        group=REM,
        read=_levels,
        metavar="N",
    )
    mode: str = setting(
        "midtread",
        "rounding of the couplings, see `tfcaps.rem.quantize`",
        choices=("midtread", "midrise"),
    )

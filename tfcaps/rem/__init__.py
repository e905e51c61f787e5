"""Routing entropy minimisation: prune, decay, quantise, collect, measure."""

from tfcaps.ops import dequantize, quantize
from tfcaps.rem.compact import compact
from tfcaps.rem.couplings import (
    capsule_outputs,
    encoder,
    quantize_couplings,
)
from tfcaps.rem.dictionary import CouplingDictionary
from tfcaps.rem.evaluate import Evaluator, evaluate
from tfcaps.rem.explanation import explanation, saliency_map
from tfcaps.rem.hierarchy import ParseTrees
from tfcaps.rem.keys import SampleKeys, sample_keys
from tfcaps.rem.masks import magnitude_masks
from tfcaps.rem.metrics import t_score
from tfcaps.rem.pruning import (
    UpdatePruningStep,
    prune_low_magnitude,
    sparsity,
    strip_pruning,
)
from tfcaps.rem.report import Report
from tfcaps.rem.sensitivity import sensitivity_decay
from tfcaps.rem.trees import Edge, ParseTree, parse_tree
from tfcaps.rem.vote_distances import VoteDistances, vote_distances

__all__ = [
    "CouplingDictionary",
    "Edge",
    "Evaluator",
    "ParseTree",
    "ParseTrees",
    "Report",
    "SampleKeys",
    "UpdatePruningStep",
    "VoteDistances",
    "capsule_outputs",
    "compact",
    "dequantize",
    "encoder",
    "evaluate",
    "explanation",
    "magnitude_masks",
    "parse_tree",
    "prune_low_magnitude",
    "quantize",
    "quantize_couplings",
    "saliency_map",
    "sample_keys",
    "sensitivity_decay",
    "sparsity",
    "strip_pruning",
    "t_score",
    "vote_distances",
]

"""Routing entropy minimisation: prune, decay, quantise, collect, measure."""

from tfcaps.ops import dequantize, quantize
from tfcaps.rem.compact import compact
from tfcaps.rem.couplings import (
    add_couplings,
    capsule_outputs,
    encoder,
    quantize_couplings,
)
from tfcaps.rem.dictionary import CouplingDictionary
from tfcaps.rem.evaluate import Evaluator, evaluate
from tfcaps.rem.explanation import explanation, saliency_map
from tfcaps.rem.hierarchy import ParseTrees
from tfcaps.rem.iterative import prune_iteratively
from tfcaps.rem.keys import SampleKeys, sample_keys
from tfcaps.rem.levels import LevelSearch, find_levels
from tfcaps.rem.low_magnitude import prune_low_magnitude
from tfcaps.rem.masks import magnitude_masks, saliency_masks
from tfcaps.rem.metrics import t_score
from tfcaps.rem.pruning import UpdatePruningStep, strip_pruning
from tfcaps.rem.report import Report
from tfcaps.rem.sensitivity import sensitivity_decay
from tfcaps.rem.single_shot import prune_single_shot
from tfcaps.rem.sparsity import sparsity
from tfcaps.rem.trees import Edge, ParseTree, parse_tree
from tfcaps.rem.vote_distances import VoteDistances, vote_distances

__all__ = [
    "CouplingDictionary",
    "Edge",
    "Evaluator",
    "LevelSearch",
    "ParseTree",
    "ParseTrees",
    "Report",
    "SampleKeys",
    "UpdatePruningStep",
    "VoteDistances",
    "add_couplings",
    "capsule_outputs",
    "compact",
    "dequantize",
    "encoder",
    "evaluate",
    "explanation",
    "find_levels",
    "magnitude_masks",
    "parse_tree",
    "prune_iteratively",
    "prune_low_magnitude",
    "prune_single_shot",
    "quantize",
    "quantize_couplings",
    "saliency_map",
    "saliency_masks",
    "sample_keys",
    "sensitivity_decay",
    "sparsity",
    "strip_pruning",
    "t_score",
    "vote_distances",
]

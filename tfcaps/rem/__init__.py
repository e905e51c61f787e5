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
from tfcaps.rem.levels import LevelSearch, find_levels
from tfcaps.rem.masks import magnitude_masks
from tfcaps.rem.metrics import t_score
from tfcaps.rem.pruning import (
    UpdatePruningStep,
    prune_low_magnitude,
    strip_pruning,
)
from tfcaps.rem.report import Report
from tfcaps.rem.sensitivity import sensitivity_decay
from tfcaps.rem.sparsity import sparsity

__all__ = [
    "CouplingDictionary",
    "Evaluator",
    "LevelSearch",
    "Report",
    "UpdatePruningStep",
    "capsule_outputs",
    "compact",
    "dequantize",
    "encoder",
    "evaluate",
    "explanation",
    "find_levels",
    "magnitude_masks",
    "prune_low_magnitude",
    "quantize",
    "quantize_couplings",
    "saliency_map",
    "sensitivity_decay",
    "sparsity",
    "strip_pruning",
    "t_score",
]

"""Routing entropy minimisation: prune, decay, quantise, collect, measure."""

from tfcaps.graphs import encoder
from tfcaps.ops import dequantize, quantize
from tfcaps.rem.attribution import integrated_gradients, occlusion
from tfcaps.rem.compact import compact
from tfcaps.rem.coupling_maps import coupling_maps
from tfcaps.rem.couplings import (
    add_couplings,
    capsule_outputs,
    quantize_couplings,
)
from tfcaps.rem.dictionary import CouplingDictionary
from tfcaps.rem.evaluate import Evaluator, evaluate
from tfcaps.rem.explanation import explanation, saliency_map
from tfcaps.rem.faithfulness import faithfulness
from tfcaps.rem.faithfulness_report import Faithfulness
from tfcaps.rem.grad_cam import grad_cam
from tfcaps.rem.hierarchy import ParseTrees
from tfcaps.rem.iterative import prune_iteratively
from tfcaps.rem.keys import SampleKeys, sample_keys
from tfcaps.rem.levels import LevelSearch, find_levels
from tfcaps.rem.low_magnitude import prune_low_magnitude
from tfcaps.rem.map_comparison import (
    MapComparison,
    attribution_maps,
    compare_maps,
)
from tfcaps.rem.map_faithfulness import (
    mu_fidelity,
    pixel_deletion,
    pixel_insertion,
)
from tfcaps.rem.masks import magnitude_masks, saliency_masks
from tfcaps.rem.metrics import t_score
from tfcaps.rem.pruning import UpdatePruningStep, strip_pruning
from tfcaps.rem.receptive_fields import ReceptiveFields, receptive_fields
from tfcaps.rem.relevance import pointing, relevance_mass
from tfcaps.rem.report import Report
from tfcaps.rem.sensitivity import sensitivity_decay
from tfcaps.rem.sharpness import SharpnessSchedule
from tfcaps.rem.single_shot import prune_single_shot
from tfcaps.rem.sparsity import sparsity
from tfcaps.rem.tree_fields import TreeFields, tree_fields
from tfcaps.rem.trees import Edge, ParseTree, parse_tree
from tfcaps.rem.trees_on_parts import TreesOnParts, trees_on_parts
from tfcaps.rem.type_keys import pool_types, type_dictionary
from tfcaps.rem.vote_distances import VoteDistances, vote_distances

__all__ = [
    "CouplingDictionary",
    "Edge",
    "Evaluator",
    "Faithfulness",
    "LevelSearch",
    "MapComparison",
    "ParseTree",
    "ParseTrees",
    "ReceptiveFields",
    "Report",
    "SampleKeys",
    "SharpnessSchedule",
    "TreeFields",
    "TreesOnParts",
    "UpdatePruningStep",
    "VoteDistances",
    "add_couplings",
    "attribution_maps",
    "capsule_outputs",
    "compact",
    "compare_maps",
    "coupling_maps",
    "dequantize",
    "encoder",
    "evaluate",
    "explanation",
    "faithfulness",
    "find_levels",
    "grad_cam",
    "integrated_gradients",
    "magnitude_masks",
    "mu_fidelity",
    "occlusion",
    "parse_tree",
    "pixel_deletion",
    "pixel_insertion",
    "pointing",
    "pool_types",
    "prune_iteratively",
    "prune_low_magnitude",
    "prune_single_shot",
    "quantize",
    "quantize_couplings",
    "receptive_fields",
    "relevance_mass",
    "saliency_map",
    "saliency_masks",
    "sample_keys",
    "sensitivity_decay",
    "sparsity",
    "strip_pruning",
    "t_score",
    "tree_fields",
    "trees_on_parts",
    "type_dictionary",
    "vote_distances",
]

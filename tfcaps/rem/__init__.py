"""Routing entropy minimisation: prune, decay, quantise, collect, measure."""

from tfcaps.graphs import encoder
from tfcaps.ops import dequantize, quantize
from tfcaps.rem.compaction.compact import compact
from tfcaps.rem.evaluation.evaluate import Evaluator, evaluate
from tfcaps.rem.evaluation.faithfulness import faithfulness
from tfcaps.rem.evaluation.faithfulness_report import Faithfulness
from tfcaps.rem.evaluation.levels import LevelSearch, find_levels
from tfcaps.rem.evaluation.metrics import t_score
from tfcaps.rem.evaluation.named_parts import named_parts
from tfcaps.rem.evaluation.named_parts_report import NamedParts
from tfcaps.rem.evaluation.part_stability import part_stability
from tfcaps.rem.evaluation.report import Report
from tfcaps.rem.evaluation.tree_lengths import tree_lengths
from tfcaps.rem.evaluation.trees_on_parts import TreesOnParts, trees_on_parts
from tfcaps.rem.evaluation.vote_distances import VoteDistances, vote_distances
from tfcaps.rem.maps.attribution import integrated_gradients, occlusion
from tfcaps.rem.maps.coupling_maps import coupling_maps
from tfcaps.rem.maps.explanation import explanation, saliency_map
from tfcaps.rem.maps.grad_cam import grad_cam
from tfcaps.rem.maps.map_comparison import (
    MapComparison,
    attribution_maps,
    compare_maps,
)
from tfcaps.rem.maps.map_faithfulness import (
    mu_fidelity,
    pixel_deletion,
    pixel_insertion,
)
from tfcaps.rem.maps.relevance import pointing, relevance_mass
from tfcaps.rem.multiply_adds import MultiplyAdds, multiply_adds
from tfcaps.rem.parse.blueprints import blueprints
from tfcaps.rem.parse.couplings import (
    add_couplings,
    capsule_outputs,
    quantize_couplings,
)
from tfcaps.rem.parse.dictionary import CouplingDictionary
from tfcaps.rem.parse.keys import SampleKeys, sample_keys
from tfcaps.rem.parse.parse_tree import Edge, ParseTree, parse_tree
from tfcaps.rem.parse.parse_trees import ParseTrees
from tfcaps.rem.parse.part_pictures import part_pictures
from tfcaps.rem.parse.receptive_fields import (
    ReceptiveFields,
    receptive_fields,
)
from tfcaps.rem.parse.tree_fields import TreeFields, tree_fields
from tfcaps.rem.parse.trees import Trees, iter_trees, trees
from tfcaps.rem.parse.type_keys import pool_types, type_dictionary
from tfcaps.rem.pruning.iterative import prune_iteratively
from tfcaps.rem.pruning.low_magnitude import prune_low_magnitude
from tfcaps.rem.pruning.masks import magnitude_masks, saliency_masks
from tfcaps.rem.pruning.pruning import UpdatePruningStep, strip_pruning
from tfcaps.rem.pruning.sensitivity import sensitivity_decay
from tfcaps.rem.pruning.single_shot import prune_single_shot
from tfcaps.rem.pruning.sparsity import sparsity
from tfcaps.rem.pruning.structured import prune_structured
from tfcaps.rem.sharpness import SharpnessSchedule

__all__ = [
    "CouplingDictionary",
    "Edge",
    "Evaluator",
    "Faithfulness",
    "LevelSearch",
    "MapComparison",
    "MultiplyAdds",
    "NamedParts",
    "ParseTree",
    "ParseTrees",
    "ReceptiveFields",
    "Report",
    "SampleKeys",
    "SharpnessSchedule",
    "TreeFields",
    "Trees",
    "TreesOnParts",
    "UpdatePruningStep",
    "VoteDistances",
    "add_couplings",
    "attribution_maps",
    "blueprints",
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
    "iter_trees",
    "magnitude_masks",
    "mu_fidelity",
    "multiply_adds",
    "named_parts",
    "occlusion",
    "parse_tree",
    "part_pictures",
    "part_stability",
    "pixel_deletion",
    "pixel_insertion",
    "pointing",
    "pool_types",
    "prune_iteratively",
    "prune_low_magnitude",
    "prune_single_shot",
    "prune_structured",
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
    "tree_lengths",
    "trees",
    "trees_on_parts",
    "type_dictionary",
    "vote_distances",
]

"""Routing entropy minimisation: prune, decay, quantise, collect, measure."""

from tfcaps.graphs import classifier
from tfcaps.ops import quantize
from tfcaps.rem.compaction.compact import compact
from tfcaps.rem.evaluation.evaluate import Evaluator as Evaluator
from tfcaps.rem.evaluation.evaluate import Report as Report
from tfcaps.rem.evaluation.evaluate import evaluate
from tfcaps.rem.evaluation.faithfulness import Faithfulness as Faithfulness
from tfcaps.rem.evaluation.faithfulness import faithfulness
from tfcaps.rem.evaluation.keypoints import Keypoints as Keypoints
from tfcaps.rem.evaluation.keypoints import keypoints
from tfcaps.rem.evaluation.levels import levels_curve, lowest_levels
from tfcaps.rem.evaluation.named_parts import NamedParts as NamedParts
from tfcaps.rem.evaluation.named_parts import (
    PartMasks,
    estimated_parts,
    named_parts,
)
from tfcaps.rem.evaluation.pixels import PixelFaithfulness as PixelFaithfulness
from tfcaps.rem.evaluation.pixels import pixel_faithfulness
from tfcaps.rem.explain import Explanation as Explanation
from tfcaps.rem.explain import explain
from tfcaps.rem.maps import blueprints, explanation, part_pictures
from tfcaps.rem.multiply_adds import MultiplyAdds as MultiplyAdds
from tfcaps.rem.multiply_adds import multiply_adds
from tfcaps.rem.parse.couplings import (
    add_couplings,
    capsule_outputs,
    quantize_couplings,
)
from tfcaps.rem.parse.dictionary import CouplingDictionary
from tfcaps.rem.parse.parse_tree import ParseTree as ParseTree
from tfcaps.rem.parse.receptive_fields import ReceptiveFields as ReceptiveFields
from tfcaps.rem.parse.receptive_fields import receptive_fields
from tfcaps.rem.parse.records import tree_records
from tfcaps.rem.parse.trees import Trees, trees
from tfcaps.rem.pruning.iterative import prune_iteratively
from tfcaps.rem.pruning.masks import sparsity
from tfcaps.rem.pruning.prune import Prune
from tfcaps.rem.pruning.pruning import (
    UpdatePruningStep,
    keep_zeros,
    prune_low_magnitude,
    strip_pruning,
)
from tfcaps.rem.pruning.sensitivity import sensitivity_decay
from tfcaps.rem.pruning.single_shot import prune_single_shot
from tfcaps.rem.pruning.structured import prune_structured

# Types of results can be imported too, such as `tfcaps.rem.Report`.
__all__ = [
    "CouplingDictionary",
    "PartMasks",
    "Prune",
    "Trees",
    "UpdatePruningStep",
    "add_couplings",
    "blueprints",
    "capsule_outputs",
    "classifier",
    "compact",
    "estimated_parts",
    "evaluate",
    "explain",
    "explanation",
    "faithfulness",
    "keep_zeros",
    "keypoints",
    "levels_curve",
    "lowest_levels",
    "multiply_adds",
    "named_parts",
    "part_pictures",
    "pixel_faithfulness",
    "prune_iteratively",
    "prune_low_magnitude",
    "prune_single_shot",
    "prune_structured",
    "quantize",
    "quantize_couplings",
    "receptive_fields",
    "sensitivity_decay",
    "sparsity",
    "strip_pruning",
    "tree_records",
    "trees",
]

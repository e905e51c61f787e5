"""Pictures of training and of parse trees, and the report that shows them.

Every figure function returns a `Drawing`, a `matplotlib.figure.Figure` that a
notebook shows and `savefig` writes. They read what a run leaves behind, or what
functions of `tfcaps.rem` make of a model, and need no model.
"""

from importlib.util import find_spec

if find_spec("matplotlib") is None:
    raise ImportError(
        "tfcaps.viz draws with matplotlib, which is not installed. Run: "
        'pip install "tfcaps[viz]"'
    )

from tfcaps.viz.curves import curves, tradeoff
from tfcaps.viz.dictionary import keys_per_class
from tfcaps.viz.drawing import Drawing
from tfcaps.viz.named_tree import named_tree
from tfcaps.viz.parse_tree import parse_tree
from tfcaps.viz.pictures import picture_rows
from tfcaps.viz.report import Section, Step, write_report
from tfcaps.viz.saliency import saliency
from tfcaps.viz.tree_fields import tree_fields

__all__ = [
    "Drawing",
    "Section",
    "Step",
    "curves",
    "keys_per_class",
    "named_tree",
    "parse_tree",
    "picture_rows",
    "saliency",
    "tradeoff",
    "tree_fields",
    "write_report",
]

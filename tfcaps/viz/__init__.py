"""Pictures of training and of parse trees, and the report that shows them.

Every figure function returns a `matplotlib.figure.Figure`, which a notebook
shows and `savefig` writes. They read what a run leaves behind and need no
model.
"""

from tfcaps.viz.curves import curves
from tfcaps.viz.histograms import coupling_histograms
from tfcaps.viz.keys import keys_per_class
from tfcaps.viz.reconstructions import perturbations, reconstructions
from tfcaps.viz.report import write_report
from tfcaps.viz.trees import parse_trees

__all__ = [
    "coupling_histograms",
    "curves",
    "keys_per_class",
    "parse_trees",
    "perturbations",
    "reconstructions",
    "write_report",
]

"""Draws the distribution of each class's couplings over its children."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops
from matplotlib.patches import Patch

from tfcaps.ops import dequantize
from tfcaps.rem import CouplingDictionary
from tfcaps.viz.drawing import Drawing, for_json
from tfcaps.viz.style import class_labels, colour, figure

# Children from which a logarithmic axis shows more than a linear one.
_MANY = 50


def coupling_histograms(
    dictionaries: Mapping[str, CouplingDictionary],
    levels: int,
    *,
    mode: str = "midtread",
    class_names: Sequence[str] | None = None,
) -> Drawing:
    """Draws a histogram of mean couplings for each class and model.

    A child's mean coupling is that towards class `j`, averaged over the samples
    that are predicted `j`, as in the REM paper's figures 12 and 13, but of the
    quantised couplings. A class that is never predicted stays empty.

    Args:
        dictionaries: Name of the model to its dictionary. The names may also be
            epochs; up to four look well.
        levels: Int. Levels of the couplings in the dictionaries.
        mode: `"midtread"` or `"midrise"`, see `tfcaps.rem.quantize`.
        class_names: Names of the classes. Defaults to their numbers.

    Returns:
        A figure with a panel for each class; with many children, their numbers
        are on a logarithmic axis. The data has the bins' `edges` and, by model
        and class, how many `children` are in each.
    """
    classes = next(iter(dictionaries.values())).num_classes
    labels = class_labels(class_names, classes)
    columns = min(classes, 5)
    rows = -(-classes // columns)
    drawing = figure(9.0, 1.2 + 1.7 * rows)
    panels = drawing.subplots(
        rows, columns, sharex=True, sharey=True, squeeze=False
    ).ravel()
    # The middle of each bin is a level.
    half = 0.5 / (levels - 1) if mode == "midtread" else 0.0
    edges = np.linspace(-half, 1 + half, levels + 1)
    values = ops.convert_to_numpy(
        dequantize(np.arange(levels), levels, mode=mode)
    )
    logarithmic = max(t.key_length for t in dictionaries.values()) > _MANY
    children: dict[str, dict[str, Any]] = {name: {} for name in dictionaries}
    for j, panel in enumerate(panels):
        if j >= classes:
            panel.set_axis_off()
            continue
        for index, (name, trees) in enumerate(dictionaries.items()):
            keys = trees.keys(j)
            if not len(keys):
                continue
            mean = np.average(values[keys], axis=0, weights=trees.counts(j))
            children[name][labels[j]], *_ = panel.hist(
                mean,
                edges,
                histtype="step" if index else "stepfilled",
                alpha=1.0 if index else 0.5,
                color=colour(index),
                linewidth=1.5,
                log=logarithmic,
            )
        panel.axvline(1 / classes, color="0.4", linestyle=":", linewidth=1)
        panel.set_title(f"class {labels[j]}", fontsize=9)
    drawing.legend(
        handles=[
            Patch(
                color=colour(index), alpha=0.5 if index == 0 else 1.0, label=n
            )
            for index, n in enumerate(dictionaries)
        ],
        loc="outside upper right",
        ncols=4,
    )
    drawing.supxlabel("mean coupling of a child (dotted: uniform)", fontsize=9)
    drawing.supylabel("children", fontsize=9)
    return Drawing(drawing, for_json({"edges": edges, "children": children}))

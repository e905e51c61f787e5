"""The most frequent parse tree of each class, from a dictionary."""

from collections.abc import Sequence

import numpy as np
from keras import ops
from matplotlib.axes import Axes
from numpy.typing import NDArray

from tfcaps.ops import dequantize
from tfcaps.rem import CouplingDictionary
from tfcaps.rem.parse.in_tree import codes_in_tree
from tfcaps.viz.drawing import Drawing, for_json
from tfcaps.viz.style import class_labels, colour, figure, in_lines


def most_frequent_trees(
    trees: CouplingDictionary,
    levels: int,
    *,
    mode: str = "midtread",
    class_names: Sequence[str] | None = None,
    threshold: float | None = None,
) -> Drawing:
    """Draws each class's most frequent key as a tree of two layers.

    The class is the upper node, its children the lower ones in the order of the
    key. A child is connected if its coupling exceeds the rounded threshold, as
    in the REM paper; the line's width is the coupling.
    Children that are not in the tree are drawn hollow.

    Args:
        trees: Dictionary of a model.
        levels: Int. Levels of the couplings in the dictionary.
        mode: `"midtread"` or `"midrise"`, see `tfcaps.rem.quantize`.
        class_names: Names of the classes. Defaults to their numbers.
        threshold: Float. The coupling that a child must exceed to be in a tree,
            `Report.tree_threshold`. Defaults to the uniform coupling 1/J.

    Returns:
        A figure with a panel for each class, titled with the share of the
        class's samples that have this very tree. The data has for each class
        its samples, how many of them have the tree, and its couplings.
    """
    labels = class_labels(class_names, trees.num_classes)
    columns = min(trees.num_classes, 5)
    rows = -(-trees.num_classes // columns)
    drawing = figure(10.0, 0.6 + 1.9 * rows)
    panels = drawing.subplots(rows, columns, squeeze=False).ravel()
    if threshold is None:
        threshold = 1 / trees.num_classes
    data = []
    for j, panel in enumerate(panels):
        panel.set_axis_off()
        if j >= trees.num_classes:
            continue
        counts = trees.counts(j)
        key = trees.keys(j)[:1].ravel()
        couplings = ops.convert_to_numpy(dequantize(key, levels, mode=mode))
        inside = ops.convert_to_numpy(
            codes_in_tree(key, threshold, levels, mode=mode)
        )
        title = f"{labels[j]}: never predicted"
        if counts:
            _draw_tree(panel, couplings, inside, labels[j])
            share = 100 * counts[0] / sum(counts)
            title = f"{share:.0f} % of {sum(counts):,} samples"
        panel.set_title(title, fontsize=9)
        data.append(
            {
                "class": labels[j],
                "samples": sum(counts),
                "with_tree": counts[0] if counts else 0,
                "couplings": couplings,
            }
        )
    return Drawing(drawing, for_json({"classes": data}))


def _draw_tree(
    panel: Axes,
    couplings: NDArray[np.float64],
    inside: NDArray[np.bool_],
    name: str,
) -> None:
    places = np.linspace(0.0, 1.0, len(couplings))
    size = float(np.clip(1500 / len(couplings), 2, 28))
    for place, coupling, is_inside in zip(
        places, couplings, inside, strict=True
    ):
        if is_inside:
            panel.plot(
                [0.5, place],
                [1.0, 0.0],
                color=colour(0),
                linewidth=3.0 * coupling,
                alpha=0.3 + 0.7 * coupling,
                zorder=1,
            )
    panel.scatter(
        places,
        np.zeros_like(places),
        s=size,
        c=np.where(inside, couplings, 0.0),
        cmap="Blues",
        vmin=-0.2,
        vmax=1.0,
        edgecolors=np.where(inside, "0.3", "0.7"),
        linewidths=0.4,
        zorder=2,
    )
    panel.text(
        0.5,
        1.0,
        in_lines(name),
        ha="center",
        va="center",
        fontsize=9,
        bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": "0.3"},
    )
    panel.set_xlim(-0.15, 1.15)
    panel.set_ylim(-0.15, 1.15)

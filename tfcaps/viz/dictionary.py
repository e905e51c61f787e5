"""Figures of a dictionary: its keys, couplings and trees."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops
from matplotlib.patches import Patch
from matplotlib.ticker import LogFormatter
from numpy.typing import NDArray

from tfcaps.ops import dequantize, quantize
from tfcaps.rem import CouplingDictionary, ParseTree
from tfcaps.viz.drawing import (
    Drawing,
    class_labels,
    colour,
    figure,
    in_lines,
    in_rows,
    with_our_look,
)
from tfcaps.viz.letters import drawable
from tfcaps.viz.parse_tree import draw_trees

# Children from which a logarithmic axis shows more than a linear one.
_MANY = 50
Array = NDArray[Any]


@with_our_look
def keys_per_class(
    dictionaries: Mapping[str, CouplingDictionary],
    *,
    class_names: Sequence[str] | None = None,
) -> Drawing:
    """Draws the number of distinct keys of each class as bars.

    Args:
        dictionaries: Name of the model to its dictionary.
        class_names: Names of the classes. Defaults to their numbers.

    Returns:
        A figure with a group of bars for each class; grey lines are the
        numbers of samples, which the keys cannot exceed.
    """
    first = next(iter(dictionaries.values()))
    positions = np.arange(first.num_classes)
    width = 0.8 / len(dictionaries)
    page, [[panel]] = figure(8.0, 3.2)
    for index, (name, trees) in enumerate(dictionaries.items()):
        left = positions - 0.4 + index * width
        look: Any = {
            "align": "edge",
            "color": colour(index),
            "label": drawable(name),
        }
        bars = panel.bar(left, trees.num_keys, width, **look)
        panel.bar_label(bars, fontsize=7)
        panel.hlines(trees.num_samples, left, left + width, color="0.6")
    panel.margins(y=0.12)  # for the numbers
    labels = class_labels(class_names, first.num_classes)
    shown = [in_lines(name) for name in labels]
    turned = 60 if any("\n" in name for name in shown) else 0
    panel.set_xticks(positions, shown, fontsize=9, rotation=turned)
    panel.set_xlabel("predicted class (grey line: its samples)")
    panel.set_ylabel("distinct keys")
    page.legend(loc="outside upper right", ncols=4)
    return page


@with_our_look
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
        are on a logarithmic axis.
    """
    classes = next(iter(dictionaries.values())).num_classes
    labels = class_labels(class_names, classes)
    page, panels = in_rows(classes, 9.0, 1.2, 1.7, sharex=True, sharey=True)
    # The middle of each bin is a level.
    half = 0.5 / (levels - 1) if mode == "midtread" else 0.0
    edges = np.linspace(-half, 1 + half, levels + 1)
    values = ops.convert_to_numpy(
        dequantize(np.arange(levels), levels, mode=mode)
    )
    logarithmic = max(t.key_length for t in dictionaries.values()) > _MANY
    looks: list[Any] = [
        {"color": colour(k), "alpha": 1.0 if k else 0.5}
        for k in range(len(dictionaries))
    ]
    for j, panel in enumerate(panels):
        for index, trees in enumerate(dictionaries.values()):
            keys = trees.keys(j)
            if not len(keys):
                continue
            means = np.average(values[keys], axis=0, weights=trees.counts(j))
            look = looks[index] | {"log": logarithmic, "linewidth": 1.5}
            look["histtype"] = "step" if index else "stepfilled"
            panel.hist(means, edges.tolist(), **look)
        panel.axvline(1 / classes, color="0.4", linestyle=":", linewidth=1)
        panel.set_title(in_lines(labels[j]))
        if logarithmic:  # not as formulas, which names are not
            panel.yaxis.set_major_formatter(LogFormatter())
            panel.yaxis.set_minor_formatter(LogFormatter())
    handles = [
        Patch(label=drawable(name), **look)
        for name, look in zip(dictionaries, looks, strict=True)
    ]
    page.legend(handles=handles, loc="outside upper right", ncols=4)
    page.supxlabel("mean coupling of a child (dotted: uniform)", fontsize=9)
    page.supylabel("children", fontsize=9)
    return page


@with_our_look
def most_frequent_trees(
    trees: CouplingDictionary,
    levels: int,
    *,
    mode: str = "midtread",
    class_names: Sequence[str] | None = None,
    threshold: float | None = None,
) -> Drawing:
    """Draws each class's most frequent key as a tree of two layers.

    The children stand in the order of the key. A child is connected if its
    coupling exceeds the rounded threshold, as in the REM paper; its colour, and
    the width of its line, are the coupling.

    Args:
        trees: Dictionary of a model.
        levels: Int. Levels of the couplings in the dictionary.
        mode: `"midtread"` or `"midrise"`, see `tfcaps.rem.quantize`.
        class_names: Names of the classes. Defaults to their numbers.
        threshold: Float. The coupling that a child must exceed to be in a tree,
            `Report.tree_threshold`. Defaults to the uniform coupling 1/J.

    Returns:
        A figure with a panel for each class, titled with the share of the
        class's samples that have this very tree; see `parse_tree`.
    """
    classes = trees.num_classes
    least = 1 / classes if threshold is None else threshold
    titles, shown = [], []
    for j in range(classes):
        counts, key = trees.counts(j), trees.keys(j)[:1].ravel()
        towards = np.zeros(trees.key_length)
        titles.append("never predicted")
        if counts:
            values = dequantize(key, levels, mode=mode)
            inside = key > int(quantize(least, levels, mode=mode))
            towards = np.where(inside, ops.convert_to_numpy(values), 0.0)
            share = 100 * counts[0] / sum(counts)
            titles[j] = f"{share:.0f} % of {sum(counts):,} samples"
        root = np.arange(classes) == j
        links = np.where(root, towards[:, np.newaxis], 0.0)
        shown.append(ParseTree((towards, root * 1.0), (j,), (links,)))
    return draw_trees(titles, shown, None, class_names, "coupling")

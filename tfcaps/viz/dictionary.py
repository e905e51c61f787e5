"""Figures of a dictionary: its keys, couplings and trees."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from tfcaps.ops import dequantize, quantize
from tfcaps.rem import CouplingDictionary, ParseTree
from tfcaps.viz.drawing import (
    Drawing,
    class_labels,
    colour,
    figure,
    in_lines,
    with_our_look,
)
from tfcaps.viz.letters import drawable
from tfcaps.viz.parse_tree import draw_trees


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

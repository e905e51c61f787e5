"""Draws the number of parse trees of each class."""

from collections.abc import Mapping, Sequence

import numpy as np

from tfcaps.rem import CouplingDictionary
from tfcaps.viz.drawing import Drawing, for_json
from tfcaps.viz.style import class_labels, colour, figure, in_lines


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
        numbers of samples, which the keys cannot exceed. The data has both, by
        model and class.
    """
    first = next(iter(dictionaries.values()))
    positions = np.arange(first.num_classes)
    width = 0.8 / len(dictionaries)
    drawing = figure(8.0, 3.2)
    panel = drawing.subplots()
    for index, (name, trees) in enumerate(dictionaries.items()):
        left = positions - 0.4 + index * width
        bars = panel.bar(
            left, trees.num_keys, width, align="edge", color=colour(index)
        )
        bars.set_label(name)
        panel.bar_label(bars, fontsize=7)
        panel.hlines(
            trees.num_samples, left, left + width, color="0.6", linewidth=1.5
        )
    labels = class_labels(class_names, first.num_classes)
    panel.set_xticks(positions, [in_lines(name) for name in labels], fontsize=9)
    if any("\n" in in_lines(name) for name in labels):
        panel.tick_params("x", labelrotation=60)
    panel.set_xlabel("predicted class (grey line: its samples)")
    panel.set_ylabel("distinct keys")
    drawing.legend(loc="outside upper right", ncols=4, fontsize=9)
    data = {
        name: {"keys": trees.num_keys, "samples": trees.num_samples}
        for name, trees in dictionaries.items()
    }
    return Drawing(drawing, for_json({"classes": labels, "models": data}))

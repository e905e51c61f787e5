"""The keys of each class, as bars."""

from collections.abc import Mapping, Sequence

import numpy as np

from tfcaps.rem import CouplingDictionary
from tfcaps.viz import drawing
from tfcaps.viz.letters import one_line


@drawing.with_our_look
def keys_per_class(
    dictionaries: Mapping[str, CouplingDictionary],
    *,
    class_names: Sequence[str] | None = None,
) -> drawing.Drawing:
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
    page, [[panel]] = drawing.figure(8.0, 3.2)
    for index, (name, trees) in enumerate(dictionaries.items()):
        left, label = positions - 0.4 + index * width, one_line(name)
        bars = panel.bar(
            left,
            trees.num_keys,
            width,
            align="edge",
            color=drawing.colour(index),
        )
        bars.set_label(label)
        panel.bar_label(bars, fontsize=7)
        panel.hlines(trees.num_samples, left, left + width, color="0.6")
    panel.margins(y=0.12)  # for the numbers
    labels = drawing.class_labels(class_names, first.num_classes)
    shown = [drawing.in_lines(name) for name in labels]
    turned = 60 if any("\n" in name for name in shown) else 0
    panel.set_xticks(positions, shown, fontsize=9, rotation=turned)
    panel.set_xlabel("predicted class (grey line: its samples)")
    panel.set_ylabel("distinct keys")
    page.legend(loc="outside upper right", ncols=4)
    return page

"""Parse trees of all capsule layers, as nodes and edges."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from tfcaps.rem import ParseTree
from tfcaps.viz import drawing

# Capsules in a layer up to which those that are not reached are drawn too.
_MANY = 64
# Lines between two layers from which on they are drawn thinner.
_FULL_INK = 100
_COLUMNS = 5
_LOOK: Any = {"cmap": "YlOrRd", "norm": Normalize(0.0, 1.0)}


@drawing.with_our_look
def parse_tree(
    trees: ParseTree | Mapping[str, ParseTree],
    *,
    class_names: Sequence[str] | None = None,
) -> drawing.Drawing:
    """Draws parse trees, the classes above and the first capsules below.

    A node's colour is its activation, a line's width and opacity the coupling.
    Capsules that are not reached from the classes are small and grey; in layers
    of more than 64 they are left out.

    Args:
        trees: A tree, or a mapping from titles to trees.
        class_names: Names of the classes. Defaults to their numbers.

    Returns:
        A figure with a panel for each tree.
    """
    if isinstance(trees, ParseTree):
        trees = {"": trees}
    layers = max(len(tree.activations) for tree in trees.values())
    high = 0.6 + (0.6 if len(trees) > 2 else 1.0) * max(layers - 1, 2)
    page, panels, rows = drawing.in_rows(
        len(trees), 10.0, 0.3, high, most=_COLUMNS
    )
    for panel, (title, tree) in zip(panels, trees.items(), strict=True):
        _draw(
            panel,
            tree,
            drawing.class_labels(class_names, len(tree.activations[-1])),
        )
        # Below, as names of classes stand above.
        panel.set_title(drawing.in_lines(title), y=0.0, pad=0, va="top")
    bar = page.colorbar(
        ScalarMappable(**_LOOK),
        ax=page.axes,
        label="activation",
        shrink=0.6,
        aspect=30,
        pad=0.01,
        panchor=False,  # panels stay in the middle
    )
    page.cut(*rows, [[bar.ax]])
    return page


def _draw(panel: Axes, tree: ParseTree, labels: Sequence[str]) -> None:
    panel.set_axis_off()
    places = [(np.arange(len(a)) + 0.5) / len(a) for a in tree.activations]
    top = len(places) - 1
    for layer, links in enumerate(tree.links):
        # The strongest are drawn last, over the others.
        child, parent = np.nonzero(links)
        order = np.argsort(links[child, parent], kind="stable")
        child, parent = child[order], parent[order]
        ink = min(1.0, _FULL_INK / max(len(order), 1))
        drawing.draw_lines(
            panel,
            [(x, layer) for x in places[layer][child]],
            [(x, layer + 1) for x in places[layer + 1][parent]],
            links[child, parent],
            thin=max(ink, 0.1),
            pale=max(ink, 0.2) ** 0.5,
        )
    for layer, (activations, reached) in enumerate(
        zip(tree.activations, tree.reached, strict=True)
    ):
        x, few = places[layer], len(activations) <= _MANY
        size = float(np.clip(900 / len(x), 6, 60))
        if few:
            pale: Any = {"c": "0.9", "edgecolors": "0.6", "linewidths": 0.4}
            others = x[~reached]
            panel.scatter(others, 0 * others + layer, s=0.4 * size, **pale)
        x, look = x[reached], {**_LOOK, "linewidths": 0.4 if few else 0.1}
        look |= {"c": activations[reached], "edgecolors": "0.3", "zorder": 3}
        panel.scatter(x, 0 * x + layer, s=size, **look)
    straight = len(tree.roots) == 1
    for j in tree.roots if len(tree.roots) <= _MANY else ():
        panel.annotate(
            drawing.in_lines(labels[j]),
            (places[top][j], top),
            xytext=(0, 8),
            textcoords="offset points",
            ha="center" if straight else "left",
            va="bottom",
            fontsize=8,
            rotation=0 if straight or len(labels[j]) < 3 else 40,
        )
    panel.set_xlim(-0.05, 1.05)
    panel.set_ylim(-0.3, top + 0.3)

"""Parse trees of all capsule layers, as nodes and edges."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from numpy.typing import NDArray

from tfcaps.rem import ParseTree
from tfcaps.viz.drawing import (
    Drawing,
    class_labels,
    draw_lines,
    figure,
    in_lines,
    picture,
    show,
    with_our_look,
)
from tfcaps.viz.letters import drawable

Array = NDArray[Any]

# Capsules in a layer up to which those that are not reached are drawn too.
_MANY = 64
# Lines between two layers from which on they are drawn thinner.
_FULL_INK = 100
_COLUMNS = 5
_SHARES = Normalize(0.0, 1.0)
_COLORMAP = "YlOrRd"


@with_our_look
def parse_tree(
    trees: ParseTree | Mapping[str, ParseTree],
    *,
    images: Sequence[Array] | Array | None = None,
    class_names: Sequence[str] | None = None,
) -> Drawing:
    """Draws parse trees, the classes above and the first capsules below.

    A node's colour is its activation, a line's width and opacity the coupling.
    Capsules that are not reached from the classes are small and grey; in layers
    of more than 64 they are left out.

    Args:
        trees: A tree, or a mapping from titles to trees.
        images: An image `[h, w, c]` for each tree, shown below it. Defaults to
            `None`.
        class_names: Names of the classes. Defaults to their numbers.

    Returns:
        A figure with a panel for each tree.

    Raises:
        ValueError: If there is not one image for each tree.
    """
    if isinstance(trees, ParseTree):
        trees = {"": trees}
    if images is not None and len(images) != len(trees):
        raise ValueError(
            "There must be one image for each tree. Received: "
            f"{len(images)} images and {len(trees)} trees."
        )
    return draw_trees([*trees], [*trees.values()], images, class_names)


def draw_trees(
    titles: Sequence[str],
    trees: Sequence[ParseTree],
    images: Sequence[Array] | Array | None,
    class_names: Sequence[str] | None,
    colours: str = "activation",
) -> Drawing:
    """Draws trees with their titles; `colours` says what these stand for."""
    columns = min(len(trees), _COLUMNS)
    layers = max(len(tree.activations) for tree in trees)
    heights = [0.6 + (0.6 if columns > 2 else 1.0) * max(layers - 1, 2)]
    heights += [0.8] if images is not None else []
    rows = -(-len(trees) // columns)
    page, panels = figure(
        10.0,
        rows * sum(heights) + 0.3,
        rows * len(heights),
        columns,
        height_ratios=heights * rows,
    )
    for panel in panels.ravel():
        panel.set_axis_off()
    above = panels[:: len(heights)]
    for panel, title, tree in zip(above.ravel(), titles, trees, strict=False):
        labels = class_labels(class_names, len(tree.activations[-1]))
        _draw(panel, tree, labels, title)
        # Below, as names of classes stand above.
        panel.set_title(in_lines(title), y=0.0, pad=0, va="top")
    cells = [[[panel] for panel in row] for row in above]
    if images is not None:
        below = panels[1::2]
        for panel, image in zip(below.ravel(), images, strict=False):
            show(panel, picture(image))
        for row, others in zip(cells, below, strict=True):
            for cell, panel in zip(row, others, strict=True):
                cell.append(panel)
    bar = page.colorbar(
        ScalarMappable(_SHARES, _COLORMAP),
        ax=panels.ravel().tolist(),
        label=colours,
        shrink=0.6,
        aspect=30,
        pad=0.01,
        panchor=False,  # panels stay in the middle
    )
    page.cut(*cells, [[bar.ax]])
    return page


def _draw(
    panel: Axes, tree: ParseTree, labels: Sequence[str], title: str
) -> None:
    places = [(np.arange(len(a)) + 0.5) / len(a) for a in tree.activations]
    top = len(places) - 1
    for layer, links in enumerate(tree.links):
        # The strongest are drawn last, over the others.
        child, parent = np.nonzero(links)
        order = np.argsort(links[child, parent], kind="stable")
        child, parent = child[order], parent[order]
        ink = min(1.0, _FULL_INK / max(len(order), 1))
        draw_lines(
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
        y = np.full(len(x), float(layer))
        size = float(np.clip(900 / len(x), 6, 60))
        if few:
            pale: Any = {"c": "0.9", "edgecolors": "0.6", "linewidths": 0.4}
            panel.scatter(
                x[~reached], y[~reached], s=0.4 * size, zorder=2, **pale
            )
        panel.scatter(
            x[reached],
            y[reached],
            s=size,
            c=activations[reached],
            cmap=_COLORMAP,
            norm=_SHARES,
            edgecolors="0.3",
            linewidths=0.4 if few else 0.1,
            zorder=3,
        )
    for j in tree.roots if len(tree.roots) <= _MANY else ():
        straight = len(labels[j]) < 3 or len(tree.roots) == 1
        if straight and drawable(title, empty="") == labels[j]:
            continue  # it is said below
        panel.annotate(
            in_lines(labels[j]),
            (places[top][j], top),
            xytext=(0, 8),
            textcoords="offset points",
            ha="center" if straight else "left",
            va="bottom",
            fontsize=8,
            rotation=0 if straight else 40,
        )
    panel.set_xlim(-0.05, 1.05)
    panel.set_ylim(-0.3, top + 0.3)

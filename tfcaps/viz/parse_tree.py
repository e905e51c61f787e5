"""Parse trees of all capsule layers, as nodes and edges."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize, to_rgba
from numpy.typing import NDArray

from tfcaps.rem import ParseTree
from tfcaps.viz.drawing import (
    Drawing,
    class_labels,
    colour,
    figure,
    for_json,
    picture,
    show,
)

Array = NDArray[Any]

# Capsules in a layer up to which those that are not reached are drawn too.
_MANY = 64
# Lines between two layers from which on they are drawn thinner.
_FULL_INK = 100
_COLUMNS = 5
_ACTIVATIONS = Normalize(0.0, 1.0)
_COLORMAP = "YlOrRd"


def parse_tree(
    trees: ParseTree | Mapping[str, ParseTree],
    *,
    images: Sequence[Array] | None = None,
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
        A figure with a panel for each tree. The data has the trees, by title,
        as `ParseTree.to_dict` writes them.

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
    layers = max(len(tree.activations) for tree in trees.values())
    panels, drawing = _panels(len(trees), layers, images is not None)
    pairs = list(trees.items())
    for index, (title, tree) in enumerate(pairs):
        labels = class_labels(class_names, len(tree.activations[-1]))
        _draw(panels[0][index], tree, labels, alone=len(pairs) <= 2)
        panels[0][index].set_title(title, fontsize=9)
        if images is not None:
            show(panels[1][index], picture(images[index]))
    drawing.colorbar(
        ScalarMappable(_ACTIVATIONS, _COLORMAP),
        ax=[panel for row in panels for panel in row],
        label="activation",
        shrink=0.6,
        aspect=30,
        pad=0.01,
        panchor=False,  # panels stay in the middle
    )
    return Drawing(
        drawing, for_json({title: tree.to_dict() for title, tree in pairs})
    )


def _panels(
    count: int, layers: int, with_images: bool
) -> tuple[list[list[Axes]], Any]:
    """Returns the panels of trees, those of images, and the figure."""
    columns = min(count, _COLUMNS)
    rows = -(-count // columns)
    height = 0.6 + (0.6 if columns > 2 else 1.0) * max(layers - 1, 2)
    below = 0.8 if with_images else 0.0
    drawing = figure(10.0, rows * (height + below) + 0.3)
    kinds = [height, below] if with_images else [height]
    grid = drawing.subplots(
        rows * len(kinds),
        columns,
        squeeze=False,
        gridspec_kw={"height_ratios": kinds * rows},
    )
    for panel in grid.ravel():
        panel.set_axis_off()
    return [list(grid[k :: len(kinds)].ravel()) for k in range(len(kinds))], (
        drawing
    )


def _draw(
    panel: Axes, tree: ParseTree, labels: Sequence[str], alone: bool
) -> None:
    places = [_places(len(a)) for a in tree.activations]
    for layer in range(len(places) - 1):
        _draw_edges(panel, tree, layer, places)
    for layer, (activations, reached) in enumerate(
        zip(tree.activations, tree.reached, strict=True)
    ):
        _draw_layer(panel, layer, places[layer], activations, reached)
    top = len(places) - 1
    for j in tree.roots if len(tree.roots) <= _MANY else ():
        panel.annotate(
            labels[j],
            (places[top][j], top),
            xytext=(0, 8),
            textcoords="offset points",
            ha="center"
            if len(labels[j]) < 3 or len(tree.roots) == 1
            else "left",
            va="bottom",
            fontsize=8,
            rotation=0 if len(labels[j]) < 3 or len(tree.roots) == 1 else 40,
        )
    panel.set_xlim(-0.05, 1.05)
    panel.set_ylim(-0.3, top + 0.3)


def _draw_edges(
    panel: Axes, tree: ParseTree, layer: int, places: Sequence[Array]
) -> None:
    # The strongest are drawn last, over the others.
    edges = sorted(
        (edge for edge in tree.edges if edge.layer == layer),
        key=lambda edge: edge.coupling,
    )
    ink = min(1.0, _FULL_INK / max(len(edges), 1))
    panel.add_collection(
        LineCollection(
            [
                [
                    (places[layer][edge.child], layer),
                    (places[layer + 1][edge.parent], layer + 1),
                ]
                for edge in edges
            ],
            linewidths=[max(ink, 0.1) * (0.5 + 3.5 * e[3]) for e in edges],
            colors=[
                to_rgba(colour(0), max(ink, 0.2) ** 0.5 * (0.2 + 0.8 * e[3]))
                for e in edges
            ],
            zorder=1,
        )
    )


def _draw_layer(
    panel: Axes,
    layer: int,
    places: Array,
    activations: Array,
    reached: NDArray[np.bool_],
) -> None:
    size = float(np.clip(900 / len(places), 6, 60))
    heights = np.full(len(places), float(layer))
    if len(places) <= _MANY:
        panel.scatter(
            places[~reached],
            heights[~reached],
            s=0.4 * size,
            c="0.9",
            edgecolors="0.6",
            linewidths=0.4,
            zorder=2,
        )
    panel.scatter(
        places[reached],
        heights[reached],
        s=size,
        c=activations[reached],
        cmap=_COLORMAP,
        norm=_ACTIVATIONS,
        edgecolors="0.3",
        linewidths=0.4 if len(places) <= _MANY else 0.1,
        zorder=3,
    )


def _places(count: int) -> Array:
    """Returns the places of a layer's capsules, from left to right."""
    margin = 0.5 / count
    return np.linspace(margin, 1.0 - margin, count)

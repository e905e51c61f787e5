"""Images, their trees, and the parts of the images that the children see."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike, NDArray

from tfcaps.rem import ReceptiveFields, Trees
from tfcaps.rem.labels import chosen_classes
from tfcaps.viz.drawing import (
    Drawing,
    class_labels,
    colour,
    figure,
    for_json,
    in_lines,
    picture,
    show,
)

Array = NDArray[Any]

# Widths in inches, heights in units of a crop.
_IMAGE, _SLOT = 1.9, 0.95
_GAP, _CLASS = 0.22, 1.7


class _Tree(NamedTuple):
    """The children in the tree of an image, the strongest first."""

    predicted: int
    length: float
    children: NDArray[np.int64]
    couplings: Array
    activations: Array
    fields: ReceptiveFields

    @property
    def boxes(self) -> NDArray[np.int64]:
        """Their fields, `[n, 4]`, see `ReceptiveFields.boxes`."""
        return self.fields.boxes[self.children]

    @property
    def types(self) -> NDArray[np.int64]:
        """Their types, `[n]`."""
        return self.children % self.fields.grid[2]


def tree_fields(
    images: Array,
    trees: Trees,
    fields: ReceptiveFields,
    *,
    labels: ArrayLike | None = None,
    titles: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    most: int = 8,
) -> Drawing:
    """Draws each image beside its tree, with what the tree's children see.

    The image has an outline around the field of each child of the tree; its
    width is the coupling. Beside the image is the tree: the predicted class,
    and below it the parts of the image that its strongest children see (by
    coupling times activation), the strongest first. The width of a line is the
    coupling. Below each part are the type of the child and its coupling. Its
    number is also at the outline, and the colour of both is that of the type.

    If all children see the same, or the whole image, as on a deep network, the
    parts shown are the cells of the image at their places in the grid. Without
    such a grid there are no parts, and children are dots. The figure says why.

    Args:
        images: Images `[n, h, w, c]`, see `saliency`. A dozen at most look
            well.
        trees: What `tfcaps.rem.trees` returns for them.
        fields: What `tfcaps.rem.receptive_fields` returns for the model.
        labels: Their classes, `[n]` or one-hot, shown over the images. Defaults
            to `None`.
        titles: A line for each, shown over its tree. Defaults to `None`.
        class_names: Names of the classes. Defaults to their numbers.
        most: Int. Children that are shown of a tree. Defaults to `8`.

    Returns:
        A figure with a row for each image. The data has for each its class, and
        all children of its tree with types, places, couplings, activations and
        boxes.

    Raises:
        ValueError: If there is not one tree, and one title, for each image, no
            image, or `most` is below 1.
    """
    if not isinstance(trees, Trees):
        raise ValueError(
            "`trees` must be what `tfcaps.rem.trees` returns. Received: "
            f"{type(trees).__name__}."
        )
    if not len(images) == len(trees) > 0:
        raise ValueError(
            "There must be one tree for each image. Received: "
            f"{len(images)} images and {len(trees)} trees."
        )
    if titles is not None and len(titles) != len(trees):
        raise ValueError(
            "There must be one title for each image. Received: "
            f"{len(images)} images and {len(titles)} titles."
        )
    if most < 1:
        raise ValueError(f"`most` must be at least 1. Received: most={most}.")
    given: Any = [None] * len(trees)
    if labels is not None:
        given = chosen_classes(labels, len(images))
    names = class_labels(class_names, trees.lengths.shape[1])
    each = [_tree(trees, k, fields) for k in range(len(trees))]
    pictures = [picture(image) for image in images]
    width = _IMAGE + most * _SLOT
    drawing = figure(width + 0.4, 2.35 * len(trees) + 0.1)
    panels = drawing.subplots(
        len(trees), 2, squeeze=False, width_ratios=[_IMAGE, width - _IMAGE]
    )
    above = list(titles or [""] * len(trees))
    for (left, right), image, tree, label, title in zip(
        panels, pictures, each, given, above, strict=True
    ):
        show(left, image)
        right.set_title(title, loc="left", fontsize=9)
        if label is not None:
            left.set_title(in_lines(names[int(label)]), fontsize=9)
        shown = _at_its_places(tree)
        _draw_outlines(left, image, shown, most)
        _draw_tree(right, image, shown, names[tree.predicted], most)
        right.text(
            0, -0.6, _sentence(tree), va="top", fontsize=7.5, color="0.3"
        )
    return Drawing(drawing, _data(pictures, each, given, above, names))


def _tree(trees: Trees, k: int, fields: ReceptiveFields) -> _Tree:
    """Returns the tree of an image, by coupling times activation."""
    strength = trees.towards[k].astype(np.float64) * trees.activations[k]
    order = np.argsort(-strength, kind="stable")
    children = order[trees.in_tree[k][order]]
    j = int(trees.predicted[k])
    return _Tree(
        j,
        float(trees.lengths[k, j]),
        children,
        trees.towards[k, children].astype(np.float64),
        trees.activations[k, children].astype(np.float64),
        fields,
    )


def _at_its_places(tree: _Tree) -> _Tree:
    """Returns the tree with cells for fields if these tell no place."""
    fields = tree.fields
    if fields.is_local or min(fields.grid[:2]) == 1:
        return tree
    return tree._replace(fields=fields.cells)


def _draw_outlines(panel: Axes, image: Array, tree: _Tree, most: int) -> None:
    """Draws what children see, those that are cut out in colour."""
    if not tree.fields.is_local:
        return
    side = tree.fields.image_shape[1]
    views = image.shape[1] // side
    strength = tree.couplings / max(tree.couplings.max(initial=0.0), 1e-9)
    shown = min(most, len(tree.children))
    # The strongest are drawn last, over the others.
    for k in reversed(range(len(tree.children))):
        top, left, bottom, right = tree.boxes[k]
        for view in range(views):
            panel.add_patch(
                Rectangle(
                    (left - 0.5 + view * side, top - 0.5),
                    right - left,
                    bottom - top,
                    fill=False,
                    linewidth=0.4 + (1.8 * strength[k] if k < shown else 0.0),
                    edgecolor=colour(int(tree.types[k])) if k < shown else "w",
                    alpha=float(strength[k]) * (0.9 if k < shown else 0.25),
                )
            )
    _draw_numbers(panel, tree, shown)


def _draw_numbers(panel: Axes, tree: _Tree, shown: int) -> None:
    """Puts the number of a part at its outline, one for equal outlines."""
    numbers: dict[tuple[int, ...], list[int]] = {}
    for k, box in enumerate(tree.boxes[:shown].tolist()):
        numbers.setdefault(tuple(box), []).append(k)
    for (top, left, _, _), equal in numbers.items():
        _draw_tag(
            panel,
            left - 0.5,
            top - 0.5,
            ", ".join(str(k + 1) for k in equal),
            colour(int(tree.types[equal[0]])),
        )


def _draw_tag(panel: Axes, x: float, y: float, text: str, tint: str) -> None:
    """Puts a number into the upper left corner of an outline."""
    panel.annotate(
        text,
        (x, y),
        xytext=(2.5, -2.5),
        textcoords="offset points",
        ha="left",
        va="top",
        fontsize=6.5,
        color="w",
        bbox={"boxstyle": "round,pad=0.2", "fc": tint, "ec": "w", "lw": 0.5},
        zorder=4,
    )


def _draw_tree(
    panel: Axes, image: Array, tree: _Tree, name: str, most: int
) -> None:
    shown = min(most, len(tree.children))
    width = most * (1 + _GAP)
    middle = ((shown or most) * (1 + _GAP) - _GAP) / 2
    is_local = tree.fields.is_local
    panel.set_axis_off()
    panel.set_aspect("equal")
    panel.set_xlim(-0.1, width + 0.6)
    panel.set_ylim(-0.85, _CLASS + 0.25)
    _draw_lines(panel, tree.couplings[:shown], middle, 1.0 if is_local else 0.5)
    panel.text(
        middle,
        _CLASS,
        name,
        ha="center",
        va="center",
        fontsize=10,
        fontweight="bold",
        bbox={"boxstyle": "round,pad=0.35", "fc": "w", "ec": "0.3", "lw": 0.8},
        zorder=3,
    )
    for k in range(shown):
        start = k * (1 + _GAP)
        tint = colour(int(tree.types[k]) if is_local else 0)
        if is_local:
            _draw_crop(panel, image, tree, k, start)
            _draw_tag(panel, start, 1.0, str(k + 1), tint)
        else:
            panel.scatter(start + 0.5, 0.5, s=90, c=tint, zorder=2)
        kind = "child" if tree.fields.grid[:2] == (1, 1) else "type"
        panel.text(
            start + 0.5,
            -0.06 if is_local else 0.25,  # below a part, or a dot
            f"{kind} {tree.types[k]}\n{tree.couplings[k]:.2f}",
            ha="center",
            va="top",
            fontsize=7.5,
            color=tint,
        )
    if len(tree.children) > shown:
        panel.text(
            width,
            0.5,
            f"and {len(tree.children) - shown:,}\nmore",
            va="center",
            fontsize=8,
            color="0.3",
        )


def _draw_lines(
    panel: Axes, couplings: Array, middle: float, end: float
) -> None:
    lines = [
        [(k * (1 + _GAP) + 0.5, end), (middle, _CLASS)]
        for k in range(len(couplings))
    ]
    panel.add_collection(
        LineCollection(
            lines,
            linewidths=[0.5 + 3.5 * c for c in couplings],
            colors=[to_rgba("0.25", 0.2 + 0.8 * c) for c in couplings],
            zorder=1,
        )
    )


def _draw_crop(
    panel: Axes, image: Array, tree: _Tree, k: int, start: float
) -> None:
    """Draws what a child sees; what lies beyond the image is grey."""
    fields = tree.fields
    side = fields.image_shape[1]
    views = image.shape[1] // side
    rows, columns = fields.size
    scale = max(rows, columns * views)
    middle = fields.child_centres[tree.children[k]]
    first = middle - (np.array(fields.size) - 1) / 2
    top, left, bottom, right = tree.boxes[k]
    tint = colour(int(tree.types[k]))
    for view in range(views):
        # The window's upper left corner.
        x, y = start + 0.5 + (view - views / 2) * columns / scale, 1.0
        window = (x, y - rows / scale), columns / scale, rows / scale
        panel.add_patch(Rectangle(*window, fc="0.88", ec="none", zorder=2))
        crop = image[top:bottom, view * side + left : view * side + right]
        if crop.size:
            x += (left - first[1]) / scale
            y -= (top - first[0]) / scale
            across, down = (right - left) / scale, (bottom - top) / scale
            panel.imshow(
                crop,
                cmap="gray",
                vmin=0,
                vmax=255,
                extent=(x, x + across, y - down, y),
                zorder=2.1,
            )
        panel.add_patch(
            Rectangle(*window, fill=False, lw=1.8, ec=tint, zorder=2.2)
        )


def _sentence(tree: _Tree) -> str:
    """Says how large the tree is, and what a child sees."""
    fields = tree.fields
    number = len(fields.boxes)
    in_tree = f"{len(tree.children):,} of {number:,} children are in the tree"
    if not len(tree.children):
        in_tree = f"none of the {number:,} children is in the tree"
    rows, columns = fields.size
    high, wide = fields.image_shape
    down, across, _ = fields.grid
    sees = f"each sees {rows}x{columns} of {high}x{wide} pixels"
    if not fields.is_local and min(down, across) > 1:
        sees = (
            f"each sees up to {rows}x{columns} of {high}x{wide} pixels, and is "
            f"shown by its cell in a grid of {down}x{across}"
        )
    elif len(np.unique(fields.boxes, axis=0)) == 1:
        sees = (
            f"every child sees the same {rows}x{columns} of {high}x{wide} "
            "pixels, so none stands for a part"
        )
    elif not fields.is_local:
        sees = "there are children that see the whole image"
    return f"{in_tree}; {sees}"


def _data(
    pictures: Sequence[Array],
    trees: Sequence[_Tree],
    labels: Sequence[Any] | Array,
    titles: Sequence[str],
    names: Sequence[str],
) -> dict[str, Any]:
    return for_json(
        {
            "class_names": names,
            "images": [
                {
                    "image": image,
                    "label": label,
                    "title": title,
                    "predicted": tree.predicted,
                    "length": round(tree.length, 6),
                    "is_local": tree.fields.is_local,
                    "size": tree.fields.size,
                    "grid": tree.fields.grid,
                    "children": [
                        {
                            "child": int(child),
                            "position": tree.fields.position(int(child)),
                            "coupling": round(float(coupling), 6),
                            "activation": round(float(activation), 6),
                            "box": box,
                        }
                        for child, coupling, activation, box in zip(
                            tree.children,
                            tree.couplings,
                            tree.activations,
                            tree.boxes.tolist(),
                            strict=True,
                        )
                    ],
                }
                for image, tree, label, title in zip(
                    pictures, trees, labels, titles, strict=True
                )
            ],
        }
    )

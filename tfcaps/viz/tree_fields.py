"""Images, their trees, and the parts of the images that the children see."""

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from tfcaps.ops import Array, check_positive
from tfcaps.rem import Explanation, ReceptiveFields
from tfcaps.viz import drawing
from tfcaps.viz.letters import one_line

# Widths in inches, heights in units of a crop.
_IMAGE, _SLOT = 1.9, 0.95
_GAP, _CLASS = 0.22, 1.7
# Children for which there is room, and letters of a title per child.
_FEWEST, _LETTERS = 4, 15


@drawing.with_our_look
def tree_fields(
    explained: Explanation,
    titles: Sequence[str] | None = None,
    *,
    most: int = 8,
) -> drawing.Drawing:
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
        explained: What `tfcaps.rem.explain` returns. A dozen images at most
            look well.
        titles: A line for each image, shown over its tree. Defaults to `None`.
        most: Int. Children that are shown of a tree. Defaults to `8`.

    Returns:
        A figure with a row for each image.

    Raises:
        ValueError: If there is no image, or not one title for each, or `most`
            is below 1.
    """
    trees, fields = explained.trees, explained.fields
    titles = [""] * len(trees) if titles is None else titles
    if not len(trees) == len(titles) > 0:
        raise ValueError(
            "There must be one title for each image, and an image. Received: "
            f"{len(trees)} images, {len(titles)} titles."
        )
    check_positive(most=most)
    names = drawing.class_labels(explained.class_names, trees.lengths.shape[1])
    kind = "child " if fields.grid[:2] == (1, 1) else "type "
    types = drawing.class_labels(
        explained.type_names, trees.num_types, word=kind, argument="type_names"
    )
    # No wider than the largest tree, and than what is written below it.
    most = min(most, max(_FEWEST, int(trees.leaves.max(initial=0)) + 1))
    wide, sides = most * _LETTERS, [_IMAGE, most * _SLOT]
    page, panels = drawing.figure(
        sum(sides) + 0.4,
        2.35 * len(trees) + 0.1,
        len(trees),
        2,
        width_ratios=sides,
    )
    cells = fields.regions
    for k, (left, right) in enumerate(panels):
        children = trees.strongest(k)
        couplings = trees.towards[k, children].astype(np.float64)
        tints = [
            drawing.colour(int(child % cells.grid[2]) if cells.is_local else 0)
            for child in children
        ]
        called = [one_line(types[t], _LETTERS) for t in trees.types[children]]
        tree = _Tree(children, couplings, called, tints, cells)
        image, aspect = (
            drawing.picture(explained.images[k]),
            explained.aspects[k],
        )
        drawing.show(left, image, aspect)
        label = None if explained.labels is None else explained.labels[k]
        if label is not None:
            left.set_title(drawing.in_lines(names[label]))
        if cells.is_local:
            _draw_outlines(left, image, tree, most)
        title = textwrap.wrap(one_line(titles[k], 4 * wide, empty=""), wide)
        right.set_title("\n".join(title[:3]), loc="left")
        _draw_tree(right, image, tree, names[trees.predicted[k]], most, aspect)
        text = textwrap.fill(_sentence(len(children), fields), wide)
        right.text(0, -0.6, text, va="top", fontsize=7.5, color="0.3")
    page.cut(*([[left], [right]] for left, right in panels))
    return page


class _Tree(NamedTuple):
    """The children in the tree of an image, the strongest first."""

    children: Array
    couplings: Array
    names: list[str]
    colours: list[str]
    fields: ReceptiveFields


def _draw_outlines(panel: Axes, image: Array, tree: _Tree, most: int) -> None:
    """Draws what children see, in colour and numbered if it is cut out."""
    side = tree.fields.image_shape[1]
    strength = tree.couplings / max(tree.couplings.max(initial=0.0), 1e-9)
    numbers: dict[tuple[int, ...], list[int]] = {}
    boxes = tree.fields.boxes[tree.children].tolist()
    # The strongest are drawn last, over the others.
    for k, (top, left, bottom, right) in reversed([*enumerate(boxes)]):
        look = {"lw": 0.4, "ec": "w", "alpha": 0.25 * strength[k]}
        if k < most:
            look["lw"] += 1.8 * strength[k]
            look |= {"ec": tree.colours[k], "alpha": 0.9 * strength[k]}
            numbers.setdefault((left, top), []).insert(0, k)
        for shift in range(0, image.shape[1], side):
            corner = left - 0.5 + shift, top - 0.5
            size = right - left, bottom - top
            panel.add_patch(Rectangle(corner, *size, fill=False, **look))
    # One tag for equal outlines.
    for (left, top), equal in sorted(numbers.items(), key=lambda x: x[1]):
        text = ", ".join(str(k + 1) for k in equal)
        _draw_tag(panel, left - 0.5, top - 0.5, text, tree.colours[equal[0]])


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
    panel: Axes, image: Array, tree: _Tree, name: str, most: int, aspect: float
) -> None:
    shown = min(most, len(tree.children))
    middle = ((shown or most) * (1 + _GAP) - _GAP) / 2
    is_local, side = tree.fields.is_local, tree.fields.image_shape[1]
    panel.set_axis_off()
    panel.set_aspect("equal")
    panel.set_xlim(-0.1, most * (1 + _GAP) + 0.6)
    panel.set_ylim(-0.85, _CLASS + 0.25)
    starts = np.arange(shown) * (1 + _GAP)
    couplings = tree.couplings[:shown]
    end = 1.0 if is_local else 0.5
    tips = np.array([(start + 0.5, end) for start in starts]).reshape(-1, 2)
    root = np.broadcast_to([middle, _CLASS], tips.shape)
    drawing.draw_lines(panel, tips, root, couplings, hue="0.25")
    frame = {"boxstyle": "round", "fc": "w", "ec": "0.3", "lw": 0.8}
    style: Any = {"ha": "center", "va": "center", "zorder": 3, "bbox": frame}
    panel.text(middle, _CLASS, name, fontsize=9, weight="bold", **style)
    for k, start in enumerate(starts):
        tint = tree.colours[k]
        if is_local:
            top, left, bottom, right = tree.fields.boxes[tree.children[k]]
            views = np.split(image, image.shape[1] // side, axis=1)
            seen = [view[top:bottom, left:right] for view in views]
            crop = np.concatenate(seen, axis=1)
            if crop.size:  # else all that it sees is beyond the border
                _draw_crop(panel, crop, start, tint, aspect)
            _draw_tag(panel, start, 1.0, str(k + 1), tint)
        else:
            panel.scatter(start + 0.5, 0.5, s=90, c=tint, zorder=2)
        below = -0.06 if is_local else 0.25  # a part, or a dot
        text = f"{tree.names[k]}\n{couplings[k]:.2f}"
        style = {"ha": "center", "va": "top", "fontsize": 7.5}
        panel.text(start + 0.5, below, text, color=tint, **style)
    if len(tree.children) > shown:
        text = f"and {len(tree.children) - shown:,}\nmore"
        style = {"va": "center", "fontsize": 8, "color": "0.3"}
        panel.text(most * (1 + _GAP), 0.5, text, **style)


def _draw_crop(
    panel: Axes, crop: Array, start: float, tint: str, aspect: float
) -> None:
    """Draws what a child sees, in a frame."""
    sides = crop.shape[0] * aspect, crop.shape[1]
    down, across = np.array(sides) / max(sides)
    x, y = start + 0.5 - across / 2, 1.0 - down
    extent = (x, x + across, y, y + down)
    grey: Any = {"cmap": "gray", "vmin": 0, "vmax": 255, "aspect": "equal"}
    panel.imshow(crop, extent=extent, zorder=2, **grey)
    edge: Any = {"fill": False, "lw": 1.8, "ec": tint}
    panel.add_patch(Rectangle((x, y), across, down, zorder=2.2, **edge))


def _sentence(count: int, fields: ReceptiveFields) -> str:
    """Says how large a tree is, and what a child sees."""
    number = len(fields.boxes)
    in_tree = f"{count:,} of {number:,} children are in the tree"
    if not count:
        in_tree = f"none of the {number:,} children is in the tree"
    (rows, columns), (high, wide) = fields.size, fields.image_shape
    down, across, _ = fields.grid
    pixels = f"{rows}x{columns} of {high}x{wide} pixels"
    if fields.is_local:
        sees = f"each sees {pixels}"
    elif fields.unknown:
        sees = (
            f"each sees {pixels} at most, and its place is not known, as "
            f"nothing is of the layers {', '.join(fields.unknown)}"
        )
    elif min(down, across) > 1:
        sees = (
            f"each sees up to {pixels}, and is shown by its cell in a grid of "
            f"{down}x{across}"
        )
    else:
        sees = f"some see all {pixels}, so that none stands for a part"
    return f"{in_tree}; {sees}"

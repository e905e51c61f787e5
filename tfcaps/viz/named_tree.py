"""One image, the parts that its class was told by, and whether they matter."""

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from tfcaps.rem import Trees
from tfcaps.viz.drawing import (
    Drawing,
    Labels,
    class_labels,
    colour,
    picture,
    show,
    without_ticks,
)

Array = NDArray[Any]

# Inches: the page, the side of the image, and where it and the rest begin.
_WIDTH, _HEIGHT = 9.0, 8.2
_IMAGE, _LEFT, _TOP, _RIGHT = 4.55, 0.2, 1.22, 5.05
# Most children that get a name or a line, and most types in the dictionary.
_NAMED, _OUTSIDE, _LINES, _TYPES = 8, 4, 40, 10
# Classes of which bars are drawn, and letters of their names.
_CLASSES, _LETTERS = 3, 33
_GREY, _DARK = "#777777", "#222222"
_NOT = "not part of it"
# A class that is less than half as long is lost, as in `Faithfulness`.
_LOST = 0.5
# Children outside a tree are shown if they exceed this share of the image's
# most active one, as in `Faithfulness.necessity_active`.
_ACTIVE = 0.1
# Pixels: of children nearer to each other one is shown.
_APART = 1.5


def named_tree(
    image: Array,
    tree: Trees,
    lengths: ArrayLike,
    *,
    class_names: Sequence[str] | None = None,
    type_names: Sequence[str] | None = None,
    blueprint: ArrayLike | None = None,
    parts: ArrayLike | None = None,
    label: int | None = None,
) -> Drawing:
    """Draws the parts of an image by which a network told its class.

    On the image are the leaves of its tree with the names of their types; lines
    lead to the place of the class, or to its name where there is no blueprint.
    Other active children are hollow. Beside it are the blueprint of the class
    and what each type looks like. Below are the longest classes as the image
    is, without its tree, and with its tree alone.

    Args:
        image: Image `[h, w, c]`, see `saliency`.
        tree: The `Trees` of this one image, such as `trees[k : k + 1]`.
        lengths: Class lengths `[3, j]` of the image, see
            `tfcaps.rem.tree_lengths`.
        class_names: Names of the classes. Defaults to their numbers.
        type_names: Names of the types. Defaults to "type 3".
        blueprint: Row and column of each type's part in the predicted class,
            `[t, 2]`, NaN where it has none; see `tfcaps.rem.blueprints`.
            Defaults to `None`, not shown.
        parts: What each type looks like, `[t, rows, columns, c]`, NaN for those
            that are not known; see `tfcaps.rem.part_pictures`. Defaults to
            `None`, not shown.
        label: Class of the image. Defaults to `None`, not known.

    Returns:
        A figure.

    Raises:
        ValueError: If there is not one tree, its children have no places, or
            there are not three rows of lengths or too few names.
    """
    if len(tree) != 1:
        raise ValueError(f"`tree` must be of one image. Received: {len(tree)}.")
    if not tree.has_places:
        raise ValueError("The children of this tree have no places to draw.")
    lengths = np.asarray(lengths, "float32")
    expected = (3, tree.lengths.shape[1])
    if lengths.shape != expected:
        raise ValueError(
            f"`lengths` must have the shape {expected}. Received: "
            f"{lengths.shape}."
        )
    classes = class_labels(class_names, lengths.shape[1])
    types = class_labels(
        type_names, tree.num_types, word="type ", name="type_names"
    )
    predicted = int(tree.predicted[0])
    shown, seen = _choose(tree, types), picture(image)
    page = Drawing(figsize=(_WIDTH, _HEIGHT), dpi=120)
    title = f"The network names this image: {classes[predicted]}"
    if label is not None:
        is_right = label == predicted
        title += " (right)" if is_right else f" (WRONG: {classes[label]})"
    _write(page, _LEFT, 0.12, _short(title, 88), size=13, weight="bold")
    told = "\n".join(textwrap.wrap(_told(shown), 110)[:2])
    _write(page, _LEFT, 0.45, told, color="#444444")
    place = None
    if blueprint is not None:
        place = _class_place(shown, np.asarray(blueprint, float))
    _draw_image(page, seen, shown, place, classes[predicted])
    top, number = _TOP, 2
    if blueprint is not None:
        few = parts is None or len(np.asarray(parts)) <= _TYPES // 2
        high = 2.85 if few else 2.1
        _draw_blueprint(page, np.asarray(blueprint), types, high)
        top, number = _TOP + high + 0.42, 3
    if parts is not None:
        _draw_parts(page, np.asarray(parts), types, top, number)
    _draw_lengths(page, seen, shown, lengths, classes, predicted)
    return page


class _Shown(NamedTuple):
    """The children of an image that are drawn."""

    leaves: Array  # indices, the strongest first
    outside: Array
    places: Array  # x and y of all children
    types: Array
    names: Sequence[str]  # of the types

    def name(self, child: int) -> str:
        return self.names[self.types[child]]

    def colours(self, children: Array) -> list[str]:
        return [colour(int(k)) for k in self.types[children]]


def _choose(tree: Trees, types: Sequence[str]) -> _Shown:
    """Returns the children that are drawn, the strongest first."""
    active, inside = tree.activations[0], tree.in_tree[0]
    places = tree.places[0][:, ::-1]
    order = np.argsort(-tree.towards[0] * active, kind="stable")
    leaves = order[inside[order]]
    least = _ACTIVE * max(float(active.max(initial=0.0)), 1e-6)
    outside: list[int] = []
    taken = list(places[leaves])
    for k in np.argsort(-active, kind="stable"):
        if inside[k] or active[k] <= least:
            continue
        if all(np.hypot(*(places[k] - at)) >= _APART for at in taken):
            outside.append(int(k))
            taken.append(places[k])
    return _Shown(leaves, np.array(outside, int), places, tree.types, types)


def _told(shown: _Shown) -> str:
    """Says by what the class is told, and what is no part of it."""
    count, others = len(shown.leaves), len(shown.outside)
    across = np.argsort(shown.places[shown.leaves, 0], kind="stable")
    if not count:
        text = "It found no part of it: its tree is empty."
    elif count > _NAMED:
        text = f"It does so by {count:,} of its {len(shown.types):,} capsules; "
        text += f"the strongest {_NAMED} have their names."
    else:
        plural, names = "s" * (count > 1), _listed(shown, shown.leaves[across])
        text = f"It does so by the part{plural} it found: {names}."
    if others > _OUTSIDE:
        text += f" {others:,} others are not part of it."
    elif others:
        text += f" Not part of it: {_listed(shown, shown.outside)}."
    return text


def _listed(shown: _Shown, children: Array) -> str:
    *names, last = [shown.name(k) for k in children]
    return f"{', '.join(names)} and {last}" if names else last


def _short(text: str, letters: int) -> str:
    return textwrap.shorten(text, letters, placeholder="...")


def _class_place(shown: _Shown, blueprint: Array) -> Array | None:
    """Returns the place of the class by its leaves, x and y."""
    shifts = blueprint[shown.types[shown.leaves], ::-1]
    votes = shown.places[shown.leaves] - shifts
    votes = votes[np.isfinite(votes).all(axis=1)]
    return np.median(votes, axis=0) if len(votes) else None


# Drawing, at inches from the upper left corner of a page.


def _panel(
    page: Drawing, left: float, top: float, wide: float, high: float
) -> Axes:
    corner = left / _WIDTH, 1 - (top + high) / _HEIGHT
    return page.add_axes((*corner, wide / _WIDTH, high / _HEIGHT))


def _write(
    page: Drawing, left: float, top: float, text: str, **style: Any
) -> None:
    style = {"va": "top", "color": _DARK, "size": 10.5, **style}
    page.text(left / _WIDTH, 1 - top / _HEIGHT, text, **style)


def _head(page: Drawing, left: float, top: float, text: str) -> None:
    _write(page, left, top - 0.28, text, weight="bold")


def _draw_image(
    page: Drawing, seen: Array, shown: _Shown, place: Array | None, name: str
) -> None:
    """Draws the image and its tree."""
    _head(page, _LEFT, _TOP, "1  What it found: the parse tree of this image")
    rows, columns = seen.shape[:2]
    scale = _IMAGE / max(rows, columns)
    wide, high = columns * scale, rows * scale
    left, top = _LEFT + (_IMAGE - wide) / 2, _TOP + (_IMAGE - high) / 2
    panel = _panel(page, left, top, wide, high)
    show(panel, seen)
    end = np.array([columns / 2 - 0.5, -0.5]) if place is None else place
    at, few = shown.places, len(shown.leaves) <= _NAMED
    lines = np.array([[at[k], end] for k in shown.leaves]).reshape(-1, 2, 2)
    tints, width = shown.colours(shown.leaves), 2.2 if few else 1.2
    for line, tint in list(zip(lines, tints, strict=True))[:_LINES]:
        panel.plot(*line.T, color="w", lw=width + 1.4, zorder=2)
        panel.plot(*line.T, color=tint, lw=width, zorder=3)
    _draw_points(panel, seen, shown, 95 if few else 40)
    if place is not None:
        _draw_place(panel, place)
    elif len(shown.leaves):
        frame = {"boxstyle": "round,pad=0.3", "fc": "w", "ec": _DARK}
        style: Any = {"ha": "center", "va": "top", "weight": "bold"}
        style |= {"bbox": frame, "zorder": 5}
        panel.text(end[0], end[1], _short(name, _LETTERS), **style)
    inside, outside = shown.leaves[:_NAMED], shown.outside[:_OUTSIDE]
    points = np.array([*at[inside], *at[outside], end])
    labels = Labels(panel, points, lines if few else ())
    for k, tint in zip(inside, tints, strict=False):
        labels.add(at[k], shown.name(k), edge=tint, size=10)
    for k in outside:
        text = f"{shown.name(k)},\n{_NOT}"
        labels.add(at[k], text, edge=_GREY, size=8.5)
    told = "filled: in the tree"
    told += f"; hollow: found, {_NOT}" * (len(outside) > 0)
    told += "; cross: where the whole is" * (place is not None)
    panel.set_xlabel(told, fontsize=9, labelpad=5, color=_DARK)


def _draw_points(panel: Axes, seen: Array, shown: _Shown, size: float) -> None:
    """Draws leaves, the strongest over the others, and hollow other ones."""
    leaves, width = shown.leaves[::-1], 1.4 if size > 10 else 0
    look: Any = {"c": shown.colours(leaves), "edgecolors": "w", "zorder": 4}
    _dots(panel, shown.places[leaves], s=size, lw=width, **look)
    for tints, width, order in (
        ("w", 3.2, 3.4),
        (shown.colours(shown.outside), 1.8, 3.5),
    ):
        look = {"fc": "none", "edgecolors": tints, "zorder": order}
        _dots(panel, shown.places[shown.outside], s=size, lw=width, **look)
    panel.set_xlim(-0.5, seen.shape[1] - 0.5)
    panel.set_ylim(seen.shape[0] - 0.5, -0.5)


def _dots(panel: Axes, places: Array, **look: Any) -> None:
    x, y = places.T
    panel.scatter(x, y, **look)


def _draw_place(panel: Axes, place: Array) -> None:
    look: Any = {"marker": "P", "c": "w", "edgecolors": "k", "lw": 1.2}
    _dots(panel, place, s=150, zorder=5, **look)


def _draw_blueprint(
    page: Drawing, blueprint: Array, types: Sequence[str], high: float
) -> None:
    """Draws where the parts of the class are in the weights."""
    _head(page, _RIGHT, _TOP, "2  What it looks for (read from its weights)")
    wide = _WIDTH - _RIGHT - _LEFT
    panel = _panel(page, _RIGHT, _TOP, wide, high)
    known = np.flatnonzero(np.isfinite(blueprint).all(axis=1))
    at = blueprint[:, ::-1]
    # A pixel is as wide as it is high.
    reach = np.abs(at[known]).max(axis=0, initial=4.0) + (5.0, 4.5)
    scale = max(reach[0] / wide, reach[1] / high)
    panel.set_xlim(-scale * wide, scale * wide)
    panel.set_ylim(scale * high, -scale * high)
    without_ticks(panel)
    for k in known:
        tint = colour(int(k))
        panel.plot([0, at[k, 0]], [0, at[k, 1]], color=tint, lw=1.6, zorder=1)
        _dots(panel, at[k], s=95, color=tint, zorder=3)
    middle = np.zeros(2)
    _draw_place(panel, middle)
    lines = np.array([[middle, at[k]] for k in known])
    labels = Labels(panel, np.array([*at[known], middle]), lines)
    for k in known:
        labels.add(at[k], types[int(k)], edge=colour(int(k)), size=10)


def _draw_parts(
    page: Drawing, parts: Array, types: Sequence[str], top: float, number: int
) -> None:
    """Draws what each type looks like, in two rows if they are many."""
    known = np.flatnonzero(np.isfinite(parts).all(axis=(1, 2, 3)))
    _head(page, _RIGHT, top, f"{number}  Its parts: what each looks like")
    columns = min(max(len(known), 4), _TYPES // 2)
    step = (_WIDTH - _RIGHT - _LEFT) / columns
    side = 0.88 * step
    low = parts[known].min(initial=np.inf)
    high = parts[known].max(initial=-np.inf)
    for n, k in enumerate(known[:_TYPES]):
        row, column = divmod(n, columns)
        left = _RIGHT + (column + 0.5) * step - side / 2
        panel = _panel(page, left, top + 0.05 + row * (side + 0.34), side, side)
        show(panel, picture((parts[k] - low) / ((high - low) or 1.0)))
        for edge in panel.spines.values():
            edge.set(color=colour(int(k)), linewidth=3)
        name = _short(types[int(k)], 12)
        panel.set_xlabel(name, fontsize=10, labelpad=3, color=_DARK)
    if len(known) > _TYPES:
        text = f"and {len(known) - _TYPES:,} more"
        _write(page, _RIGHT, top + 0.1 + 2 * (side + 0.34), text, size=9)


def _draw_lengths(
    page: Drawing,
    seen: Array,
    shown: _Shown,
    lengths: Array,
    classes: Sequence[str],
    predicted: int,
) -> None:
    """Draws what the network says with and without the tree."""
    top = _TOP + _IMAGE + 0.7
    title = "Is that why? The three most likely classes when the network gets"
    _head(page, _LEFT, top, title)
    nothing = shown.leaves[:0]
    panels = (
        ("all that it found", shown),
        ("all but the tree", shown._replace(leaves=nothing)),
        ("the tree alone", shown._replace(outside=nothing)),
    )
    width, side = (_WIDTH - 2 * _LEFT) / 3, 0.8
    size = 16 if len(shown.leaves) <= _NAMED else 5
    for n, (title, some) in enumerate(panels):
        left, row = _LEFT + n * width, lengths[n]
        _write(page, left, top, title)
        if n:
            least = _LOST * lengths[0, predicted]
            stays = np.argmax(row) == predicted and row[predicted] >= least
            told = "the class stays" if stays else "the class is gone"
            style = {"color": "#0072B2" if stays else "#B34700", "size": 10}
            _write(page, left, top + 1.4, told, weight="bold", **style)
        small = _panel(page, left, top + 0.34, side, side)
        show(small, seen)
        small.images[0].set_alpha(0.35)
        _draw_points(small, seen, some, size)
        bars = (left + side + 0.1, top + 0.32, width - side - 0.32, 1.0)
        _draw_bars(_panel(page, *bars), row, classes, predicted)


def _draw_bars(
    panel: Axes, lengths: Array, classes: Sequence[str], predicted: int
) -> None:
    order = np.argsort(-lengths, kind="stable")[:_CLASSES]
    panel.set_axis_off()
    panel.set_xlim(0, 1.22 * max(1.0, float(lengths.max())))
    panel.set_ylim(_CLASSES - 0.05, -0.15)
    for n, j in enumerate(order):
        own = j == predicted
        tint, weight = (_DARK, "bold") if own else ("#B0B0B0", "normal")
        style: Any = {"color": _DARK, "size": 8, "weight": weight}
        panel.barh(n + 0.68, lengths[j], height=0.26, color=tint)
        panel.barh(n + 0.68, 1.0, height=0.26, fill=False, ec="#DDDDDD", lw=0.6)
        name, length = _short(classes[j], _LETTERS), f"{lengths[j]:.2f}"
        panel.text(0, n + 0.44, name, va="bottom", **style)
        panel.text(1.03, n + 0.7, length, va="center", size=8.5)

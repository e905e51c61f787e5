"""The panels of `named_tree`: image, blueprint, parts and lengths."""

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike, NDArray

from tfcaps.viz.drawing import colour, picture, show, without_ticks

Array = NDArray[Any]

# Inches.
WIDTH, HEIGHT = 9.0, 8.2
_IMAGE, _LEFT, TOP = 4.55, 0.2, 1.22
_RIGHT = 5.05
# Most children that get a name or a line, and most types in the dictionary.
_NAMED, _OUTSIDE, _LINES, TYPES = 8, 4, 40, 10
# Classes of which bars are drawn, and letters of their names.
_CLASSES, _LETTERS = 3, 33
_GREY, _DARK = "#777777", "#222222"
_NOT = "not part of it"
# A class that is less than half as long is lost, as in `Faithfulness`.
_LOST = 0.5

# Directions in which a text may lie from its point, the best first.
_DIRECTIONS = np.array(
    [(0, -1), (0, 1), (1, 0), (-1, 0), (1, -1), (-1, -1), (1, 1), (-1, 1)]
)
# Pixels between a point and its text, in steps.
_DISTANCES = (11, 18, 28, 40)
# What it costs to lie beyond the panel, on a text or a point, and on a line.
_BEYOND, _ON_OTHERS, _ON_LINES = 40.0, 20.0, 3.0
# Half the side of a point in pixels.
_POINT = 9.0


class Shown(NamedTuple):
    """The children of an image that are drawn, places as x and y."""

    leaves: Array  # indices, the strongest first
    outside: Array
    places: Array  # of all children
    types: Array


def _panel(
    drawing: Figure, left: float, top: float, width: float, height: float
) -> Axes:
    """Returns a panel at a place in inches from the upper left corner."""
    return drawing.add_axes(
        (
            left / WIDTH,
            1 - (top + height) / HEIGHT,
            width / WIDTH,
            height / HEIGHT,
        )
    )


def _write(
    drawing: Figure, left: float, top: float, text: str, **style: Any
) -> None:
    """Writes a text at a place in inches from the upper left corner."""
    style = {"va": "top", "color": _DARK, "fontsize": 10.5, **style}
    drawing.text(left / WIDTH, 1 - top / HEIGHT, text, **style)


def write_head(
    drawing: Figure,
    shown: Shown,
    types: Sequence[str],
    classes: Sequence[str],
    predicted: int,
    label: int | None,
) -> None:
    """Writes the class and the names of its parts."""
    title = f"The network names this image: {classes[predicted]}"
    if label is not None:
        is_right = label == predicted
        title += " (right)" if is_right else f" (WRONG: {classes[label]})"
    title = textwrap.shorten(title, 88, placeholder="...")
    _write(drawing, _LEFT, 0.12, title, fontsize=13, fontweight="bold")
    text = _told(shown, types)
    text = "\n".join(textwrap.wrap(text, 110)[:2])
    _write(drawing, _LEFT, 0.45, text, color="#444444")


def _told(shown: Shown, types: Sequence[str]) -> str:
    """Says by what the class is told, and what is no part of it."""
    count, others = len(shown.leaves), len(shown.outside)
    across = np.argsort(shown.places[shown.leaves, 0], kind="stable")
    names = [types[shown.types[k]] for k in shown.leaves[across]]
    if not names:
        text = "It found no part of it: its tree is empty."
    elif count > _NAMED:
        text = f"It does so by {count:,} of its {len(shown.types):,} capsules; "
        text += f"the strongest {_NAMED} have their names."
    else:
        plural = "s" if count > 1 else ""
        text = f"It does so by the part{plural} it found: {_listed(names)}."
    outside = [types[shown.types[k]] for k in shown.outside]
    if others > _OUTSIDE:
        text += f" {others:,} others are not part of it."
    elif others:
        text += f" Not part of it: {_listed(outside)}."
    return text


def _listed(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def draw_image(
    drawing: Figure,
    seen: Array,
    shown: Shown,
    types: Sequence[str],
    blueprint: ArrayLike | None,
    name: str,
) -> Array | None:
    """Draws the image and its tree; returns the place of the class."""
    _write(
        drawing,
        _LEFT,
        TOP - 0.28,
        "1  What it found: the parse tree of this image",
        fontweight="bold",
    )
    rows, columns = seen.shape[:2]
    scale = _IMAGE / max(rows, columns)
    wide, high = columns * scale, rows * scale
    top = TOP + (_IMAGE - high) / 2
    panel = _panel(drawing, _LEFT + (_IMAGE - wide) / 2, top, wide, high)
    show(panel, seen)
    at = shown.places
    place = _class_place(shown, blueprint)
    end = np.array([columns / 2 - 0.5, -0.5]) if place is None else place
    lines = np.array([[at[k], end] for k in shown.leaves]).reshape(-1, 2, 2)
    few = len(shown.leaves) <= _NAMED
    drawn = list(zip(shown.leaves, lines, strict=True))[:_LINES]
    for k, line in drawn:
        tint, width = colour(int(shown.types[k])), 2.2 if few else 1.2
        panel.plot(*line.T, color="w", lw=width + 1.4, zorder=2)
        panel.plot(*line.T, color=tint, lw=width, zorder=3)
    _draw_points(panel, shown, 95 if few else 40)
    if place is not None:
        _draw_place(panel, place)
    elif len(shown.leaves):
        _draw_name(panel, end, name)
    names = [(k, types[shown.types[k]]) for k in shown.leaves[:_NAMED]]
    spots = [*shown.leaves[:_NAMED], *shown.outside[:_OUTSIDE]]
    points = [at[k] for k in spots] + [end]
    labels = Labels(panel, np.array(points), lines if few else lines[:0])
    for k, text in names:
        labels.add(at[k], text, edge=colour(int(shown.types[k])), size=10)
    for k in shown.outside[:_OUTSIDE]:
        text = f"{types[shown.types[k]]},\n{_NOT}"
        labels.add(at[k], text, edge=_GREY, size=8.5)
    panel.set_xlim(-0.5, columns - 0.5)
    panel.set_ylim(rows - 0.5, -0.5)
    _draw_legend(panel, place is not None, len(shown.outside) > 0)
    return place


def _class_place(shown: Shown, blueprint: ArrayLike | None) -> Array | None:
    """Returns the place of the class by its leaves, x and y."""
    if blueprint is None or not len(shown.leaves):
        return None
    shifts = np.asarray(blueprint, float)[shown.types[shown.leaves], ::-1]
    votes = shown.places[shown.leaves] - shifts
    votes = votes[np.isfinite(votes).all(axis=1)]
    return np.median(votes, axis=0) if len(votes) else None


def _draw_points(panel: Axes, shown: Shown, size: float) -> None:
    """Draws leaves, the strongest over the others, and hollow other ones."""
    for some, is_leaf in ((shown.leaves[::-1], True), (shown.outside, False)):
        tints = [colour(int(shown.types[k])) for k in some]
        x, y = shown.places[some].T
        if is_leaf:
            style: dict[str, Any] = {"c": tints, "edgecolors": "w"}
            width = 1.4 if size > 10 else 0
            panel.scatter(x, y, s=size, linewidths=width, zorder=4, **style)
            continue
        hollow: dict[str, Any] = {"s": size, "facecolors": "none"}
        panel.scatter(x, y, edgecolors="w", lw=3.2, zorder=3.4, **hollow)
        panel.scatter(x, y, edgecolors=tints, lw=1.8, zorder=3.5, **hollow)


def _draw_place(panel: Axes, place: Array) -> None:
    x, y = place
    panel.scatter(
        x, y, s=150, marker="P", c="w", edgecolors="k", lw=1.2, zorder=5
    )


def _draw_name(panel: Axes, end: Array, name: str) -> None:
    panel.annotate(
        textwrap.shorten(name, _LETTERS, placeholder="..."),
        tuple(end),
        xytext=(0, -3),
        textcoords="offset points",
        ha="center",
        va="top",
        fontsize=10,
        fontweight="bold",
        bbox={"boxstyle": "round,pad=0.3", "fc": "w", "ec": _DARK},
        zorder=5,
    )


def _draw_legend(panel: Axes, has_place: bool, has_outside: bool) -> None:
    style: dict[str, Any] = {"ls": "none", "ms": 9, "mew": 1.6}
    entries = [
        Line2D([], [], marker="o", color=_GREY, label="in the tree", **style)
    ]
    if has_outside:
        hollow = {**style, "mfc": "none", "mec": _GREY}
        text = f"found, {_NOT}"
        entries.append(Line2D([], [], marker="o", label=text, **hollow))
    if has_place:
        plus = {**style, "mfc": "w", "mec": "k"}
        text = "where the whole is"
        entries.append(Line2D([], [], marker="P", label=text, **plus))
    panel.legend(
        handles=entries,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.005),
        ncols=3,
        frameon=False,
        fontsize=9,
        handletextpad=0.1,
        columnspacing=1.2,
        borderaxespad=0.2,
    )


def draw_blueprint(
    drawing: Figure, blueprint: Array, types: Sequence[str], high: float
) -> None:
    """Draws where the parts of the class are in the weights."""
    _write(
        drawing,
        _RIGHT,
        TOP - 0.28,
        "2  What it looks for (read from its weights)",
        fontweight="bold",
    )
    wide = WIDTH - _RIGHT - _LEFT
    panel = _panel(drawing, _RIGHT, TOP, wide, high)
    known = np.flatnonzero(np.isfinite(blueprint).all(axis=1))
    at = blueprint[:, ::-1]
    # A pixel is as wide as it is high.
    reach = np.abs(at[known]).max(axis=0, initial=4.0) + (5.0, 4.5)
    scale = max(reach[0] / wide, reach[1] / high)
    panel.set_xlim(-scale * wide, scale * wide)
    panel.set_ylim(scale * high, -scale * high)
    without_ticks(panel)
    for side in panel.spines.values():
        side.set_color("#BBBBBB")
    for k in known:
        tint = colour(int(k))
        panel.plot([0, at[k, 0]], [0, at[k, 1]], color=tint, lw=1.6, zorder=1)
        panel.scatter(at[k, 0], at[k, 1], s=95, color=tint, zorder=3)
    _draw_place(panel, np.zeros(2))
    points = np.vstack([at[known], np.zeros((1, 2))])
    lines = np.array([[np.zeros(2), at[k]] for k in known])
    labels = Labels(panel, points, lines)
    for k in known:
        labels.add(at[k], types[int(k)], edge=colour(int(k)), size=10)


def draw_parts(
    drawing: Figure,
    parts: Array,
    types: Sequence[str],
    top: float,
    number: int,
) -> None:
    """Draws what each type looks like, in two rows if they are many."""
    known = np.flatnonzero(np.isfinite(parts).all(axis=(1, 2, 3)))
    title = f"{number}  Its parts: what each looks like"
    _write(drawing, _RIGHT, top - 0.28, title, fontweight="bold")
    columns = min(max(len(known), 4), TYPES // 2)
    step = (WIDTH - _RIGHT - _LEFT) / columns
    side = 0.88 * step
    low = parts[known].min(initial=np.inf)
    high = parts[known].max(initial=-np.inf)
    for n, k in enumerate(known[:TYPES]):
        row, column = divmod(n, columns)
        left = _RIGHT + (column + 0.5) * step - side / 2
        down = top + 0.05 + row * (side + 0.34)
        panel = _panel(drawing, left, down, side, side)
        show(panel, picture((parts[k] - low) / ((high - low) or 1.0)))
        for edge in panel.spines.values():
            edge.set(color=colour(int(k)), linewidth=3)
        name = textwrap.shorten(types[int(k)], 12, placeholder="...")
        panel.set_xlabel(name, fontsize=10, labelpad=3, color=_DARK)
    if len(known) > TYPES:
        text = f"and {len(known) - TYPES:,} more"
        _write(drawing, _RIGHT, top + 0.1 + 2 * (side + 0.34), text, fontsize=9)


def draw_lengths(
    drawing: Figure,
    seen: Array,
    shown: Shown,
    lengths: Array,
    classes: Sequence[str],
    predicted: int,
) -> None:
    """Draws what the network says with and without the tree."""
    top = TOP + _IMAGE + 0.42
    title = "Is that why? The three most likely classes when the network gets"
    _write(drawing, _LEFT, top, title, fontweight="bold")
    before = lengths[0, predicted]
    nothing = shown.leaves[:0]
    panels = (
        ("all that it found", shown.leaves, shown.outside),
        ("all but the tree", nothing, shown.outside),
        ("the tree alone", shown.leaves, nothing),
    )
    width, side = (WIDTH - 2 * _LEFT) / 3, 0.8
    for n, (title, leaves, outside) in enumerate(panels):
        left, row = _LEFT + n * width, lengths[n]
        _write(drawing, left, top + 0.28, title)
        if n:
            same = np.argmax(row) == predicted
            stays = same and row[predicted] >= _LOST * before
            told = "the class stays" if stays else "the class is gone"
            tint = "#0072B2" if stays else "#B34700"
            style = {"fontsize": 10, "fontweight": "bold", "color": tint}
            _write(drawing, left, top + 1.68, told, **style)
        small = _panel(drawing, left, top + 0.62, side, side)
        show(small, seen)
        small.images[0].set_alpha(0.35)
        some = shown._replace(leaves=leaves, outside=outside)
        _draw_points(small, some, 16 if len(shown.leaves) <= _NAMED else 5)
        small.set_xlim(-0.5, seen.shape[1] - 0.5)
        small.set_ylim(seen.shape[0] - 0.5, -0.5)
        bars = (left + side + 0.1, top + 0.6, width - side - 0.32, 1.0)
        _draw_bars(_panel(drawing, *bars), row, classes, predicted)


def _draw_bars(
    panel: Axes, lengths: Array, classes: Sequence[str], predicted: int
) -> None:
    order = np.argsort(-lengths, kind="stable")[:_CLASSES]
    panel.set_axis_off()
    panel.set_xlim(0, 1.22 * max(1.0, float(lengths.max())))
    panel.set_ylim(_CLASSES - 0.05, -0.15)
    for n, j in enumerate(order):
        own = j == predicted
        tint = _DARK if own else "#B0B0B0"
        panel.barh(n + 0.68, lengths[j], height=0.26, color=tint)
        panel.barh(n + 0.68, 1.0, height=0.26, fill=False, ec="#DDDDDD", lw=0.6)
        panel.text(
            0,
            n + 0.44,
            textwrap.shorten(classes[j], _LETTERS, placeholder="..."),
            va="bottom",
            fontsize=8,
            color=_DARK,
            fontweight="bold" if own else "normal",
        )
        panel.text(
            1.03, n + 0.7, f"{lengths[j]:.2f}", va="center", fontsize=8.5
        )


class Labels:
    """Puts texts into a panel, none on another one if that can be helped.

    Args:
        panel: The panel, whose limits and size are final.
        points: What texts must not hide, `[n, 2]`, x and y.
        lines: Ends of lines that they should not hide, `[m, 2, 2]`.
    """

    def __init__(self, panel: Axes, points: Array, lines: Array):
        self._panel = panel
        panel.apply_aspect()
        self._inside = panel.get_window_extent()
        at = panel.transData.transform(np.reshape(points, (-1, 2)))
        self._taken = np.hstack([at - _POINT, at + _POINT])
        at = panel.transData.transform(np.reshape(lines, (-1, 2)))
        ends: Array = np.reshape(at, (-1, 2, 2))
        along = np.linspace(0, 1, 40)[:, np.newaxis, np.newaxis]
        on_lines = ends[:, 0] + along * (ends[:, 1] - ends[:, 0])
        self._on_lines = on_lines.reshape(-1, 2)

    def add(self, point: Array, text: str, *, edge: str, size: float) -> None:
        """Puts a text beside a point.

        Args:
            point: x and y.
            text: The text.
            edge: Colour of the frame around it.
            size: Size of the letters.
        """
        shown = self._panel.annotate(
            text,
            (0, 0),
            xycoords="figure pixels",
            ha="center",
            va="center",
            fontsize=size,
            linespacing=1.0,
            color="#222222",
            bbox={
                "boxstyle": "round,pad=0.18",
                "fc": (1, 1, 1, 0.9),
                "ec": edge,
                "lw": 1.3,
            },
            zorder=6,
            annotation_clip=False,
        )
        half = np.array(shown.get_window_extent().size) / 2 + 4
        start = self._panel.transData.transform(point)
        # The figure's own pixels, from the lower left corner.
        middles = np.array(
            [
                start + toward * (distance + half * np.abs(toward))
                for distance in _DISTANCES
                for toward in _DIRECTIONS
            ]
        )
        costs = [
            self._cost(middle, half) + 0.4 * k
            for k, middle in enumerate(middles)
        ]
        best = middles[int(np.argmin(costs))]
        shown.xy = shown.xyann = tuple(best)
        box = np.concatenate([best - half, best + half])
        self._taken = np.vstack([self._taken, box])

    def _cost(self, middle: Array, half: Array) -> float:
        low, high = middle - half, middle + half
        box = Bbox([low, high])
        inside = Bbox.intersection(box, self._inside)
        area = box.width * box.height
        seen = 0.0 if inside is None else inside.width * inside.height
        across = np.minimum(high, self._taken[:, 2:]) - np.maximum(
            low, self._taken[:, :2]
        )
        hidden = np.prod(np.maximum(across, 0), axis=1).sum() / area
        on_lines = (
            np.all(
                (self._on_lines > low) & (self._on_lines < high), axis=1
            ).mean()
            if len(self._on_lines)
            else 0.0
        )
        return float(
            _BEYOND * (1 - seen / area)
            + _ON_OTHERS * hidden
            + _ON_LINES * on_lines * 10
        )

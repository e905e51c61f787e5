"""Draws the Pareto front of an ablation: accuracy against entropy."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from tfcaps.viz.drawing import Drawing, for_json
from tfcaps.viz.style import colour, figure

# Another number than that of the colours, so that few pairs are alike.
_MARKERS = ("o", "s", "D", "^", "v", "P", "X")
# Points up to which all are named, not only those of the front.
_MANY = 16
# Where a name may stand beside its point, in points of the page.
_OFFSETS = tuple(
    (dx, dy)
    for distance in (8, 14, 22, 32, 44)
    for dx, dy in (
        (distance, 2), (distance, -9), (-distance, 2), (-distance, -9),
        (0, distance), (0, -distance - 6),
        (distance, distance), (distance, -distance - 6),
        (-distance, distance), (-distance, -distance - 6),
    )
)  # fmt: skip


def frontier(
    points: Iterable[Mapping[str, Any]], *, setting: str = "strategy"
) -> Drawing:
    """Draws accuracy against entropy, with the Pareto front.

    The Pareto front is the step line through the points that no other, of those
    that are not trivial, beats in both mean entropy and mean accuracy. The area
    of a point grows with its T-score. Points whose trees are trivial are
    hollow; where they would squeeze the others they stand on the lower edge,
    with their accuracy.

    Args:
        points: A dict for each setting, with `entropy_bits` and
            `accuracy_quantized` (or `accuracy`), each a number or a number for
            each seed, drawn as mean and population standard deviation. Also, if
            known, `name`, `t_score`, `trivial`, and what `setting` names.
        setting: What colours and marks stand for. Defaults to `"strategy"`.

    Returns:
        A figure of one panel. The data has means and deviations of the points,
        and the numbers of those on the front, from low to high entropy.

    Raises:
        ValueError: If there are no points, or one lacks a measure.
    """
    rows = [_row(point, setting) for point in points]
    if not rows:
        raise ValueError("There must be at least one point. Received: none.")
    front = _front(rows)
    groups = list(dict.fromkeys(row["setting"] for row in rows))
    drawing = figure(7.5, 4.8)
    panel = drawing.subplots()
    below = _below(rows)
    for index, row in enumerate(rows):
        if index not in below:
            _draw_point(panel, row, groups.index(row["setting"]))
    _draw_front(panel, [rows[index] for index in front])
    panel.set_xlabel("entropy (bits)")
    panel.set_ylabel("accuracy, quantised (%)")
    panel.margins(0.08)
    panel.set_xlim(left=min(0.0, panel.get_xlim()[0]))
    panel.grid(alpha=0.3)
    for place, index in enumerate(below):
        row = rows[index]
        _draw_below(panel, row, groups.index(row["setting"]), place)
    drawing.legend(
        handles=_legend(rows, groups, bool(front)),
        loc="outside right upper",
        fontsize=8,
        labelspacing=0.9,
    )
    named = range(len(rows)) if len(rows) <= _MANY else front
    named = [index for index in named if index not in below]
    _name(drawing, panel, rows, named)
    return Drawing(drawing, for_json({"points": rows, "front": front}))


def _row(point: Mapping[str, Any], setting: str) -> dict[str, Any]:
    bits, bits_deviation = mean_and_deviation(point, "entropy_bits")
    share, share_deviation = mean_and_deviation(point, *ACCURACY)
    t_score = None
    if point.get("t_score") is not None:
        t_score, _ = mean_and_deviation(point, "t_score")
    return {
        "name": str(point.get("name", "")),
        "setting": str(point.get(setting, "")),
        "entropy_bits": bits,
        "entropy_bits_deviation": bits_deviation,
        "accuracy": 100 * share,
        "accuracy_deviation": 100 * share_deviation,
        "t_score": t_score,
        "trivial": bool(np.any(point.get("trivial", False))),
    }


# The field of the accuracy, and another one in its place.
ACCURACY = ("accuracy_quantized", "accuracy")


def mean_and_deviation(
    point: Mapping[str, Any], *fields: str
) -> tuple[float, float]:
    """Returns mean and population standard deviation of the first field known.

    Raises:
        ValueError: If the point has none of them.
    """
    for field in fields:
        if point.get(field) is not None:
            values = np.ravel(np.asarray(point[field], np.float64))
            return float(values.mean()), float(values.std())
    raise ValueError(
        f"Every point must have {' or '.join(map(repr, fields))}. Received: "
        f"{dict(point)}."
    )


def _front(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Returns the points that none beats, by rising entropy and accuracy."""
    routed = [index for index, row in enumerate(rows) if not row["trivial"]]
    routed.sort(key=lambda k: (rows[k]["entropy_bits"], -rows[k]["accuracy"]))
    front: list[int] = []
    for index in routed:
        if not front or rows[index]["accuracy"] > rows[front[-1]]["accuracy"]:
            front.append(index)
    return front


def _below(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Returns the trivial points far below the others, the lowest first."""
    routed = [row for row in rows if not row["trivial"]]
    if not routed:
        return []
    lows = [row["accuracy"] - row["accuracy_deviation"] for row in routed]
    highs = [row["accuracy"] + row["accuracy_deviation"] for row in routed]
    edge = min(lows) - (max(highs) - min(lows)) - 1.0
    below = [
        index
        for index, row in enumerate(rows)
        if row["trivial"] and row["accuracy"] < edge
    ]
    return sorted(below, key=lambda index: float(rows[index]["accuracy"]))


def _draw_below(
    panel: Axes, row: Mapping[str, Any], group: int, place: int
) -> None:
    bottom, top = panel.get_ylim()
    panel.scatter(
        row["entropy_bits"],
        bottom,
        s=45,
        marker="v",
        facecolors="white",
        edgecolors=colour(group),
        linewidths=1.2,
        clip_on=False,
        zorder=4,
    )
    panel.annotate(
        f"{row['accuracy']:.0f} %",
        (row["entropy_bits"], bottom),
        xytext=(7, 3 + 10 * place),
        textcoords="offset points",
        fontsize=7,
    )
    panel.set_ylim(bottom, top)


def _draw_point(panel: Axes, row: Mapping[str, Any], group: int) -> None:
    hue = colour(group)
    x, y = row["entropy_bits"], row["accuracy"]
    panel.errorbar(
        x,
        y,
        xerr=row["entropy_bits_deviation"] or None,
        yerr=row["accuracy_deviation"] or None,
        ecolor=hue,
        elinewidth=1,
        capsize=2,
        alpha=0.6,
        fmt="none",
    )
    panel.scatter(
        x,
        y,
        s=_area(row["t_score"]),
        marker=_MARKERS[group % len(_MARKERS)],
        facecolors="white" if row["trivial"] else hue,
        edgecolors=hue,
        linewidths=1.2,
        zorder=3,
    )


def _area(t_score: float | None) -> float:
    return 45.0 if t_score is None else 25.0 + 250.0 * t_score


def _draw_front(panel: Axes, front: Sequence[Mapping[str, Any]]) -> None:
    if not front:
        return
    x = [row["entropy_bits"] for row in front]
    y = [row["accuracy"] for row in front]
    # The last accuracy can be had at any higher entropy too.
    x.append(max(panel.dataLim.x1, x[-1]))
    y.append(y[-1])
    panel.step(
        x, y, where="post", color="0.45", linewidth=1.2, linestyle="-", zorder=1
    )


def _legend(
    rows: Sequence[Mapping[str, Any]], groups: Sequence[str], front: bool
) -> list[Line2D]:
    def dot(label: str, area: float = 45.0, **look: Any) -> Line2D:
        look = {"marker": "o", "color": "0.4", **look}
        return Line2D(
            [], [], linestyle="", markersize=area**0.5, label=label, **look
        )

    handles = [
        dot(name, marker=_MARKERS[k % len(_MARKERS)], color=colour(k))
        for k, name in enumerate(groups)
        if name
    ]
    if any(row["trivial"] for row in rows):
        handles.append(dot("trivial", markerfacecolor="white"))
    if any(row["t_score"] is not None for row in rows):
        handles += [dot(f"T-score {t:g}", _area(t)) for t in (0, 0.25, 0.75)]
    if front:
        handles.append(Line2D([], [], color="0.45", label="Pareto front"))
    return handles


def _name(
    drawing: Figure,
    panel: Axes,
    rows: Sequence[Mapping[str, Any]],
    named: Sequence[int],
) -> None:
    """Writes names where they cover neither points nor each other."""
    drawing.draw_without_rendering()  # the layout moves the panel
    frame = panel.get_window_extent()
    taken = []
    for row in rows:
        x, y = panel.transData.transform((row["entropy_bits"], row["accuracy"]))
        half = 0.5 * _area(row["t_score"]) ** 0.5 * drawing.dpi / 72
        taken.append(Bbox.from_extents(x - half, y - half, x + half, y + half))
    for index in named:
        row = rows[index]
        if not row["name"]:
            continue
        text = panel.annotate(
            row["name"],
            (row["entropy_bits"], row["accuracy"]),
            xytext=_OFFSETS[0],
            textcoords="offset points",
            fontsize=7,
        )
        tried: list[tuple[int, int, Bbox]] = []
        for number, offset in enumerate(_OFFSETS):
            _move(text, offset)
            box = text.get_window_extent().padded(1)
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1
            covered = box.count_overlaps(taken) + 10 * (not inside)
            tried.append((covered, number, box))
        _, number, box = min(tried, key=lambda place: place[:2])
        _move(text, _OFFSETS[number])
        taken.append(box)
        if max(map(abs, _OFFSETS[number])) > 16:  # too far to be clear
            panel.annotate(
                "",
                text.xy,
                xytext=_OFFSETS[number],
                textcoords="offset points",
                arrowprops={
                    "arrowstyle": "-",
                    "color": "0.6",
                    "linewidth": 0.6,
                    "shrinkA": 0,
                },
            )


def _move(text: Annotation, offset: tuple[int, int]) -> None:
    text.set_horizontalalignment(
        "left" if offset[0] > 0 else "right" if offset[0] < 0 else "center"
    )
    text.set_position(offset)

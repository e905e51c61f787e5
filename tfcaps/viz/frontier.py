"""Settings against each other: entropy, accuracy, and the Pareto front."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from tfcaps.viz.drawing import (
    Drawing,
    Labels,
    colour,
    figure,
    for_json,
    with_our_look,
)

# Another number than that of the colours, so that few pairs are alike.
_MARKERS = ("o", "s", "D", "^", "v", "P", "X")
# Points up to which all are named, not only those of the front.
_MANY = 16
# The field of the accuracy, and another one in its place.
_FIELDS = ("accuracy_quantized", "accuracy")


@with_our_look
def frontier(
    points: Iterable[Mapping[str, Any]], *, setting: str = "strategy"
) -> Drawing:
    """Draws accuracy against entropy, with the Pareto front.

    The Pareto front is the step line through the points that no other, of those
    that are not trivial, beats in both mean entropy and mean accuracy. The area
    of a point grows with its T-score. Points whose trees are trivial are
    hollow; where they would squeeze the others they stand at the lower edge,
    and their accuracy with their name.

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
    page, [[panel]] = figure(7.5, 4.8, grid=True)
    edge = _lowest(rows)
    at = [_draw_point(panel, r, groups.index(r["setting"]), edge) for r in rows]
    steps = _draw_front(panel, [rows[index] for index in front])
    panel.set_xlabel("entropy (bits)")
    panel.set_ylabel("accuracy, quantised (%)")
    panel.margins(0.08)
    panel.set_xlim(left=min(0.0, panel.get_xlim()[0]))
    page.legend(
        handles=_legend(rows, groups, bool(front)),
        loc="outside right upper",
        fontsize=8,
        labelspacing=0.9,
    )
    page.draw_without_rendering()  # the layout moves the panel
    labels = Labels(panel, at, steps)
    for k, row in enumerate(rows):
        is_below = row["accuracy"] < edge
        if row["name"] and (len(rows) <= _MANY or k in front or is_below):
            far = f" ({row['accuracy']:.0f} %)" if is_below else ""
            near = labels.add(np.array(at[k]), row["name"] + far, size=7)
            if np.abs(near).max() > 12:  # too far to be clear
                line = {"arrowstyle": "-", "color": "0.6", "linewidth": 0.6}
                panel.annotate(
                    "",
                    at[k],
                    tuple(near),
                    textcoords="offset points",
                    arrowprops=line,
                )
    return Drawing(page, for_json({"points": rows, "front": front}))


def _row(point: Mapping[str, Any], setting: str) -> dict[str, Any]:
    bits = _seeds(point, "entropy_bits")
    right = _seeds(point, *_FIELDS)
    t_scores = point.get("t_score")
    return {
        "name": str(point.get("name", "")),
        "setting": str(point.get(setting, "")),
        "entropy_bits": bits.mean(),
        "entropy_bits_deviation": bits.std(),
        "accuracy": 100 * right.mean(),
        "accuracy_deviation": 100 * right.std(),
        "t_score": None if t_scores is None else np.mean(t_scores),
        "trivial": bool(np.any(point.get("trivial", False))),
    }


def _seeds(point: Mapping[str, Any], *fields: str) -> Any:
    """Returns the numbers of the first field that is known."""
    for field in fields:
        if point.get(field) is not None:
            return np.ravel(np.asarray(point[field], np.float64))
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


def _lowest(rows: Sequence[Mapping[str, Any]]) -> float:
    """Returns the accuracy below which points would squeeze the others."""
    routed = [row for row in rows if not row["trivial"]]
    lows = [row["accuracy"] - row["accuracy_deviation"] for row in routed]
    highs = [row["accuracy"] + row["accuracy_deviation"] for row in routed]
    if not routed:
        return -np.inf
    return min(lows) - 0.3 * (max(highs) - min(lows) + 1.0)


def _draw_point(
    panel: Axes, row: Mapping[str, Any], group: int, edge: float
) -> tuple[float, float]:
    """Draws a point, not below an edge; returns where."""
    hue = colour(group)
    at = row["entropy_bits"], max(row["accuracy"], edge)
    spread = row["accuracy_deviation"] if row["accuracy"] > edge else 0.0
    panel.errorbar(
        *at,
        xerr=row["entropy_bits_deviation"] or None,
        yerr=spread or None,
        ecolor=hue,
        elinewidth=1,
        capsize=2,
        alpha=0.6,
        fmt="none",
    )
    panel.scatter(
        *at,
        s=_area(row["t_score"]),
        marker=_MARKERS[group % len(_MARKERS)],
        facecolors="white" if row["trivial"] else hue,
        edgecolors=hue,
        linewidths=1.2,
        zorder=3,
    )
    return at


def _area(t_score: float | None) -> float:
    return 45.0 if t_score is None else 25.0 + 250.0 * t_score


def _draw_front(panel: Axes, front: Sequence[Mapping[str, Any]]) -> Any:
    """Draws the front; returns the ends of its lines, `[n, 2, 2]`."""
    if not front:
        return ()
    x = [row["entropy_bits"] for row in front]
    y = [row["accuracy"] for row in front]
    # The last accuracy can be had at any higher entropy too.
    x.append(max(panel.dataLim.x1, x[-1]))
    y.append(y[-1])
    panel.step(x, y, where="post", color="0.45", linewidth=1.2, zorder=1)
    corners = np.stack([np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]], axis=-1)
    return np.stack([corners[:-1], corners[1:]], axis=1)


def _legend(
    rows: Sequence[Mapping[str, Any]], groups: Sequence[str], front: bool
) -> list[Line2D]:
    def dot(label: str, area: float = 45.0, **look: Any) -> Line2D:
        look = {"marker": "o", "color": "0.4", **look}
        return Line2D([], [], ls="", ms=area**0.5, label=label, **look)

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

"""Settings against each other: entropy, accuracy, and a Pareto front."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.ticker import MaxNLocator, NullLocator, ScalarFormatter
from matplotlib.transforms import Bbox
from numpy.typing import NDArray
from scipy.signal import savgol_filter

from tfcaps.viz.drawing import Drawing, colour, figure, for_json

Array = NDArray[np.float64]

# What can stand below: label, factor and offset of the record's number.
_AXES = {
    "sparsity": ("sparsity (%)", 100.0, 0.0),
    "epoch": ("epoch", 1.0, 1.0),
    "levels": ("levels K", 1.0, 0.0),
}
_ENTROPY, _ACCURACY = "#D62728", "#1F77B4"
# Longest window and order of the Savitzky-Golay filter, as in the REM paper.
_WINDOW = 51
_ORDER = 3
# A longer part of the points would be flattened to one cubic.
_SHARE = 4
# Fewer points are joined: a line through them would miss most.
_FEWEST = 60
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
# The field of the accuracy, and another one in its place.
ACCURACY = ("accuracy_quantized", "accuracy")
# Title, factor, and fields; the first field that is known counts.
_PANELS = (
    ("accuracy, quantised (%)", 100.0, ACCURACY),
    ("entropy (bits)", 1.0, ("entropy_bits",)),
    ("T-score", 1.0, ("t_score",)),
    ("sparsity (%)", 100.0, ("sparsity",)),
)


def tradeoff(
    records: Iterable[Mapping[str, Any]],
    x: str = "sparsity",
    *,
    chosen: int | None = None,
) -> Drawing:
    """Draws entropy (red) and quantised accuracy (blue, dashed) in one panel.

    The points are what was measured. From sixty of them on, lines are
    smoothed by a Savitzky-Golay filter of order 3 over a quarter of them, at
    most 51, in their order on the axis; fewer points, and levels, are joined.

    Args:
        records: Rows with `x` and `entropy_bits`, and `accuracy_quantized` or,
            as in `metrics.jsonl`, `test_accuracy_quantized`; those without are
            left out. Rows may name their `model`; epochs are counted from 0.
        x: `"sparsity"`, `"epoch"`, or `"levels"` on a logarithmic axis.
            Defaults to `"sparsity"`.
        chosen: Int. The levels that were chosen, marked. Defaults to `None`.

    Returns:
        A figure with a panel for each model.

    Raises:
        ValueError: If `x` is unknown, or no row has what is needed.

    References:
        - "Capsule Networks Do Not Need to Model Everything", figures 7, 8, 10
          and 14
    """
    if x not in _AXES:
        raise ValueError(
            f"`x` must be one of {tuple(_AXES)}. Received: x={x!r}."
        )
    models = _points(records, x)
    if not models:
        raise ValueError(
            f"No record has {x!r}, 'entropy_bits' and 'accuracy_quantized' or "
            "'test_accuracy_quantized'."
        )
    drawing = figure(4.6 * len(models) + 0.6, 3.6)
    panels = drawing.subplots(1, len(models), squeeze=False)[0]
    data = {}
    rights = []
    for panel, (name, points) in zip(panels, models.items(), strict=True):
        right = panel.twinx()
        rights.append(right)
        place, bits, accuracy = points
        lines = [bits, accuracy]
        if x != "levels":
            lines = [smoothed(values) for values in lines]
        _draw(panel, place, bits, lines[0], color=_ENTROPY, linestyle="-")
        _draw(right, place, accuracy, lines[1], color=_ACCURACY, linestyle="--")
        data[name] = {
            x: place,
            "entropy_bits": bits,
            "accuracy": accuracy,
            "lines": {"entropy_bits": lines[0], "accuracy": lines[1]},
        }
        _label(panel, right, x, place)
        panel.set_title(name, fontsize=10)
        if chosen is not None:
            panel.axvline(chosen, color="0.4", linestyle=":", linewidth=1.2)
    _same_limits(panels, bottom=0.0)
    _same_limits(rights)
    handles = [
        Line2D([], [], color=_ENTROPY, label="entropy"),
        Line2D([], [], color=_ACCURACY, linestyle="--", label="accuracy"),
    ]
    if chosen is not None:
        label = f"chosen: K = {chosen}"
        handles.append(Line2D([], [], color="0.4", linestyle=":", label=label))
    drawing.legend(
        handles=handles, loc="outside upper right", ncols=3, fontsize=9
    )
    return Drawing(
        drawing, for_json({"x": x, "chosen": chosen, "models": data})
    )


def _points(records: Iterable[Mapping[str, Any]], x: str) -> dict[str, Array]:
    """Returns `[3, n]` for each model: x, bits and percent, by x."""
    _, factor, offset = _AXES[x]
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for record in records:
        accuracy = record.get(
            "accuracy_quantized", record.get("test_accuracy_quantized")
        )
        values = (record.get(x), record.get("entropy_bits"), accuracy)
        if any(value is None for value in values):
            continue
        place, bits, share = map(float, values)
        row = (factor * place + offset, bits, 100.0 * share)
        rows.setdefault(str(record.get("model", "")), []).append(row)
    # Points of one x stay in the order in which they came.
    return {
        name: np.array(sorted(points, key=lambda point: point[0])).T
        for name, points in rows.items()
    }


def _draw(panel: Axes, x: Array, y: Array, line: Array, **look: Any) -> None:
    panel.plot(x, y, ".", color=look["color"], alpha=0.3, markersize=6)
    panel.plot(x, line, linewidth=1.8, **look)


def smoothed(values: Array) -> Array:
    """Returns values after a Savitzky-Golay filter, or as they are if few."""
    count = len(values)
    if count < _FEWEST:
        return values
    window = min(_WINDOW, count // _SHARE // 2 * 2 + 1)
    line = savgol_filter(values, window, _ORDER)
    # A cubic may leave what the values can be, say 100 %.
    return np.clip(line, values.min(), values.max())


def _label(panel: Axes, right: Axes, x: str, places: Array) -> None:
    panel.set_xlabel(_AXES[x][0])
    panel.set_ylabel("entropy (bits)", color=_ENTROPY)
    right.set_ylabel("accuracy (%)", color=_ACCURACY)
    panel.tick_params(axis="y", colors=_ENTROPY)
    right.tick_params(axis="y", colors=_ACCURACY)
    panel.grid(alpha=0.3)
    if x == "levels":
        panel.set_xscale("log")
        panel.set_xticks(np.unique(places))
        panel.xaxis.set_major_formatter(ScalarFormatter())
        panel.xaxis.set_minor_locator(NullLocator())
        panel.tick_params(axis="x", labelsize=8, rotation=45)
    elif x == "epoch":
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))


def _same_limits(panels: Sequence[Axes], bottom: float | None = None) -> None:
    limits = np.array([panel.get_ylim() for panel in panels])
    low = limits[:, 0].min() if bottom is None else bottom
    for panel in panels:
        panel.set_ylim(low, limits[:, 1].max())


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


def comparison(points: Iterable[Mapping[str, Any]]) -> Drawing:
    """Draws settings as rows, their measures as panels.

    Every seed is a light dot; the mean and the population standard deviation
    over seeds are a dot with a bar.

    Args:
        points: A dict for each setting, as in `frontier`: its `name`, and
            `accuracy_quantized` (or `accuracy`), `entropy_bits`, `t_score` and
            `sparsity` as far as known, each a number or a number for each seed.

    Returns:
        A figure with a panel for each measure that at least one point has.

    Raises:
        ValueError: If there are no points, or they have no measure.
    """
    rows = list(points)
    names = [str(row.get("name", k)) for k, row in enumerate(rows)]
    data = {}
    for title, factor, fields in _PANELS:
        values = [_values(row, fields, factor) for row in rows]
        if any(len(seeds) for seeds in values):
            data[title] = dict(zip(range(len(rows)), values, strict=True))
    if not data:
        raise ValueError(
            "There must be at least one point with 'accuracy', 'entropy_bits', "
            f"'t_score' or 'sparsity'. Received: {rows}."
        )
    drawing = figure(2.6 * len(data) + 1.2, 0.9 + 0.42 * len(rows))
    panels = drawing.subplots(1, len(data), sharey=True, squeeze=False)[0]
    for panel, (title, measured) in zip(panels, data.items(), strict=True):
        for k, seeds in measured.items():
            if not len(seeds):
                continue
            panel.plot(
                seeds, np.full(len(seeds), k), ".", color=colour(k), alpha=0.35
            )
            panel.errorbar(
                seeds.mean(),
                k,
                xerr=seeds.std() if len(seeds) > 1 else None,
                fmt="o",
                color=colour(k),
                capsize=3,
            )
        panel.set_title(title, fontsize=9)
        panel.tick_params(axis="x", labelsize=8)
        panel.grid(alpha=0.3)
    panels[0].set_yticks(range(len(rows)), names, fontsize=9)
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
    return Drawing(
        drawing,
        for_json(
            {
                title: [
                    {
                        "name": names[k],
                        "values": seeds,
                        "mean": seeds.mean() if len(seeds) else None,
                        "deviation": seeds.std() if len(seeds) else None,
                    }
                    for k, seeds in measured.items()
                ]
                for title, measured in data.items()
            }
        ),
    )


def _values(
    row: Mapping[str, Any], fields: tuple[str, ...], factor: float
) -> Any:
    known = [row[field] for field in fields if row.get(field) is not None]
    return factor * np.ravel(np.asarray(known[:1], np.float64))

"""Measures over the epochs, and entropy and accuracy against a setting."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator, ScalarFormatter
from numpy.typing import NDArray

from tfcaps.viz.drawing import (
    Drawing,
    colour,
    figure,
    from_zero,
    in_lines,
    in_rows,
    with_our_look,
)
from tfcaps.viz.letters import drawable

Array = NDArray[np.float64]

# Title of the panel and factor for the axis, by the field of a record.
_PANELS = {
    "test_accuracy_quantized": ("accuracy, quantised (%)", 100.0),
    "entropy_bits": ("entropy (bits)", 1.0),
    "median_keys": ("keys per class, median", 1.0),
    "nonuniform_share": ("codes off uniform (%)", 100.0),
    "t_score": ("T-score", 1.0),
    "sparsity": ("sparsity (%)", 100.0),
}
_SIDE_BY_SIDE = 3  # panels of curves
# What can stand below: label, factor and offset of the record's number.
_AXES = {
    "sparsity": ("sparsity (%)", 100.0, 0.0),
    "epoch": ("epoch", 1.0, 1.0),
    "levels": ("levels K", 1.0, 0.0),
}
_ENTROPY, _ACCURACY = "#D62728", "#1F77B4"


@with_our_look
def curves(records: Iterable[Mapping[str, Any]]) -> Drawing:
    """Draws what was measured during training, a line for each model.

    Args:
        records: Rows of `metrics.jsonl`, each with `model`, `epoch` (from 0)
            and the measures; those that are missing are left out.

    Returns:
        A figure with a panel for each measure that some record has.

    Raises:
        ValueError: If no record has a measure.
    """
    rows = list(records)
    fields = [f for f in _PANELS if any(r.get(f) is not None for r in rows)]
    if not fields:
        raise ValueError(f"No record has one of {', '.join(_PANELS)}.")
    page, panels = in_rows(
        len(fields), 9.0, 0.2, 2.4, most=_SIDE_BY_SIDE, grid=True
    )
    names = list(dict.fromkeys(row["model"] for row in rows))
    lines = {}
    for panel, field in zip(panels, fields, strict=True):
        title, factor = _PANELS[field]
        values = []
        for index, name in enumerate(names):
            points = [
                (row["epoch"] + 1, factor * row[field])
                for row in rows
                if row["model"] == name and row.get(field) is not None
            ]
            if points:
                values += [value for _, value in points]
                (lines[name],) = panel.plot(
                    *zip(*points, strict=True),
                    color=colour(index),
                    linestyle=("-", "--", ":")[index % 3],
                    marker="." if len(points) < 3 else None,
                    label=drawable(name),
                )
        panel.set_title(title)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
        if "accuracy" in field:
            _limit_accuracy(panel, min(values), max(values))
        else:
            from_zero(panel, max(values))
        panel.set_xlabel("epoch")
    handles = list(lines.values())
    page.legend(handles=handles, loc="outside upper right", ncols=3)
    rows_of_panels = (
        [[panel] for panel in panels[k : k + _SIDE_BY_SIDE]]
        for k in range(0, len(panels), _SIDE_BY_SIDE)
    )
    page.cut([page.legends], *rows_of_panels)
    return page


@with_our_look
def tradeoff(
    records: Iterable[Mapping[str, Any]],
    x: str = "sparsity",
) -> Drawing:
    """Draws entropy (red) and quantised accuracy (blue, dashed) in one panel.

    Lines join the points in their order on the axis, as they were measured; the
    paper's figures are smoothed.

    Args:
        records: Rows with `x` and `entropy_bits`, and `accuracy_quantized` or,
            as in `metrics.jsonl`, `test_accuracy_quantized`; those without are
            left out. Rows may name their `model`; epochs are counted from 0.
        x: `"sparsity"`, `"epoch"`, or `"levels"` on a logarithmic axis.
            Defaults to `"sparsity"`.

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
    width = 4.6 * len(models) + 0.6
    page, [panels] = figure(width, 3.6, 1, len(models), grid=True, sharey=True)
    rights = [panel.twinx() for panel in panels]
    _, bits, percent = np.concatenate([*models.values()], axis=1)
    for panel, right, name in zip(panels, rights, models, strict=True):
        places, *values = models[name]
        panel.set_title(in_lines(name))
        for axes, tint, title, style, y in (
            (panel, _ENTROPY, "entropy (bits)", ".-", values[0]),
            (right, _ACCURACY, "accuracy (%)", ".--", values[1]),
        ):
            # Points on the border are whole.
            axes.plot(places, y, style, color=tint, clip_on=False)
            axes.lines[0].set_label(title.split()[0])
            axes.tick_params(axis="y", colors=tint, labelleft=axes is panel)
            axes.set_ylabel(title, color=tint)
        _label(panel, x, places)
        _limit_accuracy(right, percent.min(), percent.max())
    from_zero(panels[0], bits.max())
    handles = [panels[0].lines[0], rights[0].lines[0]]
    page.legend(handles=handles, loc="outside upper right", ncols=2)
    pairs = [[*pair] for pair in zip(panels, rights, strict=True)]
    page.cut([page.legends], pairs)
    return page


def _limit_accuracy(panel: Axes, low: float, high: float) -> None:
    """Leaves room along the lines, but none beyond 100 %."""
    room = max(0.06 * (high - low), 0.5)
    panel.set_ylim(max(low - room, 0.0), min(high + room, 100.0))


def _points(records: Iterable[Mapping[str, Any]], x: str) -> dict[str, Array]:
    """Returns `[3, n]` for each model: x, bits and percent, by x."""
    _, factor, offset = _AXES[x]
    rows: dict[str, list[Any]] = {}
    for record in records:
        accuracy = record.get(
            "accuracy_quantized", record.get("test_accuracy_quantized")
        )
        values: Any = (record.get(x), record.get("entropy_bits"), accuracy)
        if None not in values:
            place = factor * values[0] + offset
            point = (place, values[1], 100.0 * values[2])
            rows.setdefault(str(record.get("model", "")), []).append(point)
    # Points of one x stay in the order in which they came.
    return {
        name: np.array(sorted(points, key=lambda point: point[0]), float).T
        for name, points in rows.items()
    }


def _label(panel: Axes, x: str, places: Array) -> None:
    panel.set_xlabel(_AXES[x][0])
    if x == "levels":
        panel.set_xscale("log")
        panel.set_xticks(np.unique(places))
        panel.xaxis.set_major_formatter(ScalarFormatter())
        panel.xaxis.set_minor_locator(NullLocator())
        panel.tick_params(axis="x", labelsize=8, rotation=45)
    elif x == "epoch":
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))

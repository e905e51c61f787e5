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
    rows_of,
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
    """
    rows = list(records)
    measured = {f: t for f, t in _PANELS.items() if _has(rows, f)}
    page, panels = in_rows(len(measured), 9.0, 0.2, 2.4, most=3, grid=True)
    names = list(dict.fromkeys(row["model"] for row in rows))
    lines = {}
    for panel, (field, (title, factor)) in zip(
        panels, measured.items(), strict=True
    ):
        highest = 0.0
        for index, name in enumerate(names):
            points = [
                (row["epoch"] + 1, factor * row[field])
                for row in rows
                if row["model"] == name and row.get(field) is not None
            ]
            if points:
                highest = max(highest, *(value for _, value in points))
                (lines[name],) = panel.plot(
                    *zip(*points, strict=True),
                    color=colour(index),
                    linestyle=("-", "--", ":")[index % 3],
                    marker="." if len(points) < 3 else None,
                    label=drawable(name),
                )
        panel.set_title(title)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
        if "accuracy" not in field:
            from_zero(panel, highest)
        panel.set_xlabel("epoch")
    handles = list(lines.values())
    page.legend(handles=handles, loc="outside upper right", ncols=3)
    page.cut([page.legends])
    page.cut_grid(rows_of(panels, 3))
    return page


def _has(rows: Iterable[Mapping[str, Any]], field: str) -> bool:
    return any(row.get(field) is not None for row in rows)


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
    for panel, right, (name, (places, bits, percent)) in zip(
        panels, rights, models.items(), strict=True
    ):
        panel.set_title(in_lines(name))
        lines = [
            *panel.plot(places, bits, ".-", color=_ENTROPY, label="entropy"),
            *right.plot(places, percent, ".--", color=_ACCURACY),
        ]
        lines[1].set_label("accuracy")
        for axes, tint, title in (
            (panel, _ENTROPY, "entropy (bits)"),
            (right, _ACCURACY, "accuracy (%)"),
        ):
            axes.tick_params(axis="y", colors=tint, labelleft=axes is panel)
            axes.set_ylabel(title, color=tint)
        _label(panel, x, places)
    points = np.concatenate([found.T for found in models.values()])
    from_zero(panels[0], points[:, 1].max())
    low, high = points[:, 2].min(), points[:, 2].max()
    room = max(0.06 * (high - low), 0.5)
    for right in rights:
        right.set_ylim(low - room, high + room)
    page.legend(handles=lines, loc="outside upper right", ncols=2)
    page.cut([page.legends])
    page.cut_grid([[[*pair] for pair in zip(panels, rights, strict=True)]])
    return page


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

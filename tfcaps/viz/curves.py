"""Measures over the epochs, and entropy and accuracy against a setting."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator, ScalarFormatter
from numpy.typing import ArrayLike

from tfcaps.ops import check_one_of
from tfcaps.viz import drawing
from tfcaps.viz.letters import one_line

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


@drawing.with_our_look
def curves(records: Iterable[Mapping[str, Any]]) -> drawing.Drawing:
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
    page, panels, tiles = drawing.in_rows(
        len(fields), 9.0, 0.2, 2.4, most=3, grid=True
    )
    names = list(dict.fromkeys(row["model"] for row in rows))
    lines = {}
    for panel, field in zip(panels, fields, strict=True):
        title, factor = _PANELS[field]
        for index, name in enumerate(names):
            points = [
                (row["epoch"] + 1, factor * row[field])
                for row in rows
                if row["model"] == name and row.get(field) is not None
            ]
            if points:
                (lines[name],) = panel.plot(
                    *zip(*points, strict=True),
                    color=drawing.colour(index),
                    linestyle=("-", "--", ":")[index % 3],
                    marker="." if len(points) < 3 else None,
                    label=one_line(name),
                )
        values = np.concatenate([line.get_ydata() for line in panel.lines])
        _limit(panel, values, is_accuracy="accuracy" in field)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
        panel.set(title=title, xlabel="epoch")
    handles = list(lines.values())
    page.legend(handles=handles, loc="outside upper right", ncols=3)
    page.cut([page.legends], *tiles)
    return page


@drawing.with_our_look
def tradeoff(
    records: Iterable[Mapping[str, Any]], x: str = "sparsity"
) -> drawing.Drawing:
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
    check_one_of(_AXES, x=x)
    label, factor, offset = _AXES[x]
    models: dict[str, Any] = {}
    for row in records:
        accuracy = row.get(
            "accuracy_quantized", row.get("test_accuracy_quantized")
        )
        place, bits = row.get(x), row.get("entropy_bits")
        if not (place is None or bits is None or accuracy is None):
            point = factor * place + offset, bits, 100.0 * accuracy
            models.setdefault(str(row.get("model", "")), []).append(point)
    if not models:
        raise ValueError(
            f"No record has {x!r}, 'entropy_bits' and 'accuracy_quantized' or "
            "'test_accuracy_quantized'."
        )
    width = 4.6 * len(models) + 0.6
    page, [panels] = drawing.figure(
        width, 3.6, 1, len(models), grid=True, sharey=True
    )
    pairs = [[panel, panel.twinx()] for panel in panels]
    _, bits, percent = np.concatenate([*models.values()]).T
    for (panel, right), name in zip(pairs, models, strict=True):
        # Points of one x stay in the order in which they came.
        points = sorted(models[name], key=lambda point: point[0])
        places, *values = np.array(points, float).T
        panel.set_title(drawing.in_lines(name))
        for axes, tint, title, style, y in (
            (panel, _ENTROPY, "entropy (bits)", ".-", values[0]),
            (right, _ACCURACY, "accuracy (%)", ".--", values[1]),
        ):
            # Points on the border are whole.
            axes.plot(places, y, style, color=tint, clip_on=False)
            axes.lines[0].set_label(title.split()[0])
            axes.tick_params(axis="y", colors=tint, labelleft=axes is panel)
            axes.set_ylabel(title, color=tint)
        panel.set_xlabel(label)
        if x == "levels":
            panel.set_xscale("log")
            panel.set_xticks(np.unique(places))
            panel.xaxis.set_major_formatter(ScalarFormatter())
            panel.xaxis.set_minor_locator(NullLocator())
            panel.tick_params(axis="x", labelsize=8, rotation=45)
        elif x == "epoch":
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        _limit(panel, bits)
        _limit(right, percent, is_accuracy=True)
    handles = [axes.lines[0] for axes in pairs[0]]
    page.legend(handles=handles, loc="outside upper right", ncols=2)
    page.cut([page.legends], pairs)
    return page


def _limit(panel: Axes, values: ArrayLike, is_accuracy: bool = False) -> None:
    """Leaves room along the lines, but no accuracy beyond 100 %."""
    low, high = np.min(values), np.max(values)
    if is_accuracy:
        room = max(0.06 * (high - low), 0.5)
        panel.set_ylim(max(low - room, 0.0), min(high + room, 100.0))
    else:  # from 0
        high = high if high > 0 else 1.0
        panel.set_ylim(-0.04 * high, 1.06 * high)

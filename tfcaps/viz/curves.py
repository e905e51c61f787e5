"""Measures over the epochs, and entropy and accuracy against a setting."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator, ScalarFormatter
from numpy.typing import NDArray
from scipy.signal import savgol_filter

from tfcaps.viz.drawing import Drawing, colour, figure, for_json

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
# The same of a layer.
_OF_LAYERS = {
    "silent": ("silent capsules (%)", 100.0),
    "activation": ("mean activation", 1.0),
    "vote_length": ("mean length of votes", 1.0),
}
# What can stand below: label, factor and offset of the record's number.
_AXES = {
    "sparsity": ("sparsity (%)", 100.0, 0.0),
    "epoch": ("epoch", 1.0, 1.0),
    "levels": ("levels K", 1.0, 0.0),
}
_ENTROPY, _ACCURACY = "#D62728", "#1F77B4"
# Longest window and order of the Savitzky-Golay filter, as in the REM paper. A
# longer part of the points than a quarter would be flattened to one cubic, and
# a line through fewer than sixty would miss most.
_WINDOW, _ORDER, _SHARE, _FEWEST = 51, 3, 4, 60


def curves(records: Iterable[Mapping[str, Any]]) -> Drawing:
    """Draws what was measured during training, a line for each model.

    Args:
        records: Rows of `metrics.jsonl`, each with `model`, `epoch` (from 0)
            and the measures; those that are missing are left out.

    Returns:
        A figure with a panel for each measure. The data has, by measure and
        model, the points `[epoch, value]` as they are drawn.
    """
    drawing = figure(9.0, 5.0)
    panels = drawing.subplots(2, 3, sharex=True).ravel()
    data = _draw_lines(panels, _PANELS, list(records))
    for panel in panels[1:]:
        panel.set_ylim(bottom=0)
    for panel in panels[3:]:
        panel.set_xlabel("epoch")
    return Drawing(drawing, for_json(data))


def layer_curves(records: Iterable[Mapping[str, Any]]) -> Drawing:
    """Draws what capsule layers do during training, a line for each layer.

    Silent capsules and short votes keep a capsule network near chance.

    Args:
        records: Rows of `metrics.jsonl` of one model, each with `epoch` (from
            0) and `layers`: for each layer a dict of `silent`, `activation`,
            and `vote_length`; those that are missing are left out.

    Returns:
        A figure with a panel for each measure. The data has, by measure and
        layer, the points `[epoch, value]` as they are drawn.
    """
    drawing = figure(9.0, 2.8)
    panels = drawing.subplots(1, len(_OF_LAYERS))
    rows = [
        {"model": layer, "epoch": record["epoch"], **measures}
        for record in records
        for layer, measures in record.get("layers", {}).items()
    ]
    data = _draw_lines(panels, _OF_LAYERS, rows)
    for panel in panels:
        panel.set_xlabel("epoch")
        panel.set_ylim(bottom=0)
    return Drawing(drawing, for_json(data))


def _draw_lines(
    panels: Sequence[Axes],
    kinds: Mapping[str, tuple[str, float]],
    rows: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Draws a panel for each kind of measure; returns what is drawn."""
    names = list(dict.fromkeys(row["model"] for row in rows))
    data: dict[str, Any] = {field: {} for field in kinds}
    lines = {}
    for panel, (field, (title, factor)) in zip(
        panels, kinds.items(), strict=True
    ):
        for index, name in enumerate(names):
            points = [
                (row["epoch"] + 1, factor * row[field])
                for row in rows
                if row["model"] == name and row.get(field) is not None
            ]
            if points:
                data[field][name] = points
                (lines[name],) = panel.plot(
                    *zip(*points, strict=True),
                    color=colour(index),
                    linestyle=("-", "--", ":")[index % 3],
                    marker="." if len(points) < 3 else None,
                    label=name,
                )
        panel.set_title(title, fontsize=10)
        panel.grid(alpha=0.3)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    if lines:
        panels[0].figure.legend(
            handles=list(lines.values()), loc="outside upper right", ncols=3
        )
    return data


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
    panels = drawing.subplots(
        1, len(models), squeeze=False, sharey=True
    ).ravel()
    rights = [panel.twinx() for panel in panels]
    data = {}
    for panel, right, (name, points) in zip(
        panels, rights, models.items(), strict=True
    ):
        data[name] = {x: points[0], "lines": {}}
        for axes, field, values, tint, style in (
            (panel, "entropy_bits", points[1], _ENTROPY, "-"),
            (right, "accuracy", points[2], _ACCURACY, "--"),
        ):
            line = values if x == "levels" else _smoothed(values)
            axes.plot(points[0], values, ".", color=tint, alpha=0.3, ms=6)
            axes.plot(points[0], line, color=tint, linestyle=style, lw=1.8)
            axes.tick_params(axis="y", colors=tint)
            data[name][field] = values
            data[name]["lines"][field] = line
        panel.tick_params(labelleft=True)
        panel.set_ylabel("entropy (bits)", color=_ENTROPY)
        right.set_ylabel("accuracy (%)", color=_ACCURACY)
        panel.set_title(name, fontsize=10)
        panel.grid(alpha=0.3)
        _label(panel, x, points[0])
        if chosen is not None:
            panel.axvline(chosen, color="0.4", linestyle=":", linewidth=1.2)
    panels[0].set_ylim(bottom=0.0)
    limits = np.array([right.get_ylim() for right in rights])
    for right in rights:
        right.set_ylim(limits[:, 0].min(), limits[:, 1].max())
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
    rows: dict[str, list[Any]] = {}
    for record in records:
        accuracy = record.get(
            "accuracy_quantized", record.get("test_accuracy_quantized")
        )
        values = (record.get(x), record.get("entropy_bits"), accuracy)
        if None not in values:
            rows.setdefault(str(record.get("model", "")), []).append(values)
    # Points of one x stay in the order in which they came.
    return {
        name: np.array(sorted(points, key=lambda point: point[0]), float).T
        * [[factor], [1.0], [100.0]]
        + [[offset], [0.0], [0.0]]
        for name, points in rows.items()
    }


def _smoothed(values: Array) -> Array:
    """Returns values after a Savitzky-Golay filter, or as they are if few."""
    count = len(values)
    if count < _FEWEST:
        return values
    window = min(_WINDOW, count // _SHARE // 2 * 2 + 1)
    line = savgol_filter(values, window, _ORDER)
    # A cubic may leave what the values can be, say 100 %.
    return np.clip(line, values.min(), values.max())


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

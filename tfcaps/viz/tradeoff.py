"""Draws entropy and accuracy against a setting that changes both."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator, ScalarFormatter
from numpy.typing import NDArray
from scipy.signal import savgol_filter

from tfcaps.viz.drawing import Drawing, for_json
from tfcaps.viz.style import figure

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

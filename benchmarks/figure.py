"""Draws the growth curves: one column for each size that is varied."""

from pathlib import Path
from typing import Any

from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

from tfcaps.files import write_atomically
from tfcaps.viz.style import colour, figure

_LABELS = {
    "children": "child capsules",
    "parents": "parent capsules",
    "dim": "components of a parent",
    "batch": "samples in a batch",
    "iterations": "routing iterations",
}
_MEASURES = (("ms", "time of a step, ms"), ("peak_mb", "peak memory, MB"))
# Told apart without colour too.
_MARKERS = ("o", "s")


def draw(growth: dict[str, Any], path: Path) -> None:
    """Writes a PNG of what `growth.measure` returns."""
    curves = growth["curves"]
    page = figure(3.0 * len(curves), 5.2)
    axes = page.subplots(
        len(_MEASURES), len(curves), squeeze=False, sharey="row", sharex="col"
    )
    for column, (quantity, points) in enumerate(curves.items()):
        values = [point["value"] for point in points]
        names = [name for name in points[0] if name != "value"]
        for row, (measure, _) in enumerate(_MEASURES):
            panel = axes[row][column]
            for number, name in enumerate(names):
                # A measure that was not taken leaves a gap.
                heights = [_height(point[name][measure]) for point in points]
                panel.plot(
                    values,
                    heights,
                    color=colour(number),
                    marker=_MARKERS[number],
                    label=name,
                )
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.xaxis.set_major_locator(FixedLocator(values))
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            for axis in (panel.xaxis, panel.yaxis):
                axis.set_minor_locator(NullLocator())
                axis.set_major_formatter("{x:g}")
            panel.grid(alpha=0.3)
        axes[-1][column].set_xlabel(_LABELS[quantity])
    for row, (_, label) in enumerate(_MEASURES):
        axes[row][0].set_ylabel(label)
    axes[0][0].legend(frameon=False)
    with write_atomically(path) as file:
        page.savefig(file, format="png")


def _height(value: float | None) -> float:
    return float("nan") if value is None else value

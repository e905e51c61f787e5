"""Draws the activity of each capsule layer over the epochs."""

from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.ticker import MaxNLocator

from tfcaps.viz.drawing import Drawing, for_json
from tfcaps.viz.style import colour, figure

# Field of a layer, title of the panel, factor for the axis.
_PANELS = (
    ("silent", "silent capsules (%)", 100.0),
    ("activation", "mean activation", 1.0),
    ("vote_length", "mean length of votes", 1.0),
    ("gradient", "gradient of weights (RMS)", 1.0),
)


def layer_curves(records: Iterable[Mapping[str, Any]]) -> Drawing:
    """Draws what capsule layers do during training, a line for each layer.

    Silent capsules, short votes and vanishing gradients keep a capsule network
    near chance.

    Args:
        records: Rows of `metrics.jsonl` of one model, each with `epoch` (from
            0) and `layers`: for each layer a dict of `silent`, `activation`,
            `vote_length` and `gradient`; those that are missing are left out.

    Returns:
        A figure with a panel for each measure, gradients on a logarithmic axis.
        The data has, by measure and layer, the points `[epoch, value]` as they
        are drawn.
    """
    rows = [row for row in records if row.get("layers")]
    layers = list(dict.fromkeys(name for row in rows for name in row["layers"]))
    drawing = figure(9.0, 2.8)
    panels = drawing.subplots(1, len(_PANELS))
    data: dict[str, Any] = {}
    for panel, (field, title, factor) in zip(panels, _PANELS, strict=True):
        data[field] = {}
        for index, layer in enumerate(layers):
            points = [
                (row["epoch"] + 1, factor * row["layers"][layer][field])
                for row in rows
                if field in row["layers"].get(layer, {})
            ]
            if points:
                data[field][layer] = points
                panel.plot(
                    *zip(*points, strict=True),
                    color=colour(index),
                    linestyle=("-", "--", ":")[index % 3],
                    marker="." if len(points) < 3 else None,
                    label=layer,
                )
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("epoch")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
        panel.grid(alpha=0.3)
        if field == "gradient" and data[field]:
            panel.set_yscale("log")
        else:
            panel.set_ylim(bottom=0)
    lines = {line.get_label(): line for panel in panels for line in panel.lines}
    if lines:
        drawing.legend(
            list(lines.values()),
            [str(label) for label in lines],
            loc="outside upper right",
            ncols=3,
        )
    return Drawing(drawing, for_json(data))

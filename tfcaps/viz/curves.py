"""Measures over the epochs, of models and of capsule layers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tfcaps.viz.drawing import Drawing, colour, figure, for_json

# Record field, title of the panel, factor for the axis.
_PANELS = (
    ("test_accuracy_quantized", "accuracy, quantised (%)", 100.0),
    ("entropy_bits", "entropy (bits)", 1.0),
    ("median_keys", "keys per class, median", 1.0),
    ("nonuniform_share", "codes off uniform (%)", 100.0),
    ("t_score", "T-score", 1.0),
    ("sparsity", "sparsity (%)", 100.0),
)
# The same of a layer.
_OF_LAYERS = (
    ("silent", "silent capsules (%)", 100.0),
    ("activation", "mean activation", 1.0),
    ("vote_length", "mean length of votes", 1.0),
    ("gradient", "gradient of weights (RMS)", 1.0),
)


def curves(records: Iterable[Mapping[str, Any]]) -> Drawing:
    """Draws what was measured during training, a line for each model.

    Args:
        records: Rows of `metrics.jsonl`, each with `model`, `epoch` (from 0)
            and the measures; those that are missing are left out.

    Returns:
        A figure with a panel for each measure. The data has, by measure and
        model, the points `[epoch, value]` as they are drawn.
    """
    rows = list(records)
    models = list(dict.fromkeys(row["model"] for row in rows))
    drawing = figure(9.0, 5.0)
    panels = drawing.subplots(2, 3, sharex=True).ravel()

    def value(row: Mapping[str, Any], model: str, field: str) -> Any:
        return row.get(field) if row["model"] == model else None

    data = _draw(drawing, panels, _PANELS, rows, models, value)
    for panel in panels[1:]:
        panel.set_ylim(bottom=0)
    for panel in panels[3:]:
        panel.set_xlabel("epoch")
    return Drawing(drawing, for_json(data))


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
    panels = drawing.subplots(1, len(_OF_LAYERS))

    def value(row: Mapping[str, Any], layer: str, field: str) -> Any:
        return row["layers"].get(layer, {}).get(field)

    data = _draw(drawing, panels, _OF_LAYERS, rows, layers, value)
    for panel, field in zip(panels, data, strict=True):
        panel.set_xlabel("epoch")
        if field == "gradient" and data[field]:
            panel.set_yscale("log")
        else:
            panel.set_ylim(bottom=0)
    return Drawing(drawing, for_json(data))


def _draw(
    drawing: Figure,
    panels: Sequence[Axes],
    kinds: Iterable[tuple[str, str, float]],
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    value: Callable[[Mapping[str, Any], str, str], Any],
) -> dict[str, Any]:
    """Draws a panel for each kind of measure; returns what is drawn.

    Args:
        drawing: The figure, which gets a legend.
        panels: As many panels as kinds.
        kinds: Field, title and factor of each measure.
        rows: Records with an `epoch`.
        names: What has a line.
        value: Function from a row, a name and a field to the value or `None`.
    """
    data: dict[str, Any] = {}
    lines = {}
    for panel, (field, title, factor) in zip(panels, kinds, strict=True):
        data[field] = {}
        for index, name in enumerate(names):
            points = [
                (row["epoch"] + 1, factor * found)
                for row in rows
                if (found := value(row, name, field)) is not None
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
        drawing.legend(
            list(lines.values()),
            list(lines),
            loc="outside upper right",
            ncols=3,
        )
    return data

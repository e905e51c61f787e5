"""Accuracy, entropy and sparsity over the epochs."""

from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from tfcaps.viz.drawing import Drawing, for_json
from tfcaps.viz.style import colour, figure

# Record field, title of the panel, factor for the axis.
_PANELS = (
    ("test_accuracy_quantized", "accuracy, quantised (%)", 100.0),
    ("entropy_bits", "entropy (bits)", 1.0),
    ("median_keys", "keys per class, median", 1.0),
    ("nonuniform_share", "codes off uniform (%)", 100.0),
    ("t_score", "T-score", 1.0),
    ("sparsity", "sparsity (%)", 100.0),
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
    data: dict[str, Any] = {}
    for panel, (field, title, factor) in zip(panels, _PANELS, strict=True):
        data[field] = {}
        for index, model in enumerate(models):
            points = [
                (row["epoch"] + 1, factor * row[field])
                for row in rows
                if row["model"] == model and row.get(field) is not None
            ]
            if points:
                data[field][model] = points
                panel.plot(
                    *zip(*points, strict=True),
                    color=colour(index),
                    linestyle=("-", "--", ":")[index % 3],
                    marker="." if len(points) < 3 else None,
                    label=model,
                )
        panel.set_title(title, fontsize=10)
        panel.grid(alpha=0.3)
    for panel in panels[1:]:
        panel.set_ylim(bottom=0)
    for panel in panels[3:]:
        panel.set_xlabel("epoch")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    drawing.legend(*_one_of_each(panels), loc="outside upper right", ncols=3)
    return Drawing(drawing, for_json(data))


def _one_of_each(panels: Iterable[Axes]) -> tuple[list[Line2D], list[str]]:
    """Returns a line for each label, and the labels."""
    lines = {line.get_label(): line for panel in panels for line in panel.lines}
    return list(lines.values()), [str(label) for label in lines]

"""Compares a few settings by their measures."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tfcaps.viz.drawing import Drawing, for_json
from tfcaps.viz.frontier import ACCURACY
from tfcaps.viz.style import colour, figure

# Title, factor, and fields; the first field that is known counts.
_PANELS = (
    ("accuracy, quantised (%)", 100.0, ACCURACY),
    ("entropy (bits)", 1.0, ("entropy_bits",)),
    ("T-score", 1.0, ("t_score",)),
    ("sparsity (%)", 100.0, ("sparsity",)),
)


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

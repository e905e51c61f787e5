"""Draws how close votes come to their parents during routing."""

from collections.abc import Mapping

import numpy as np
from matplotlib import colormaps

from tfcaps.rem import VoteDistances
from tfcaps.viz.drawing import Drawing, figure, for_json


def vote_distances(distances: Mapping[str, VoteDistances]) -> Drawing:
    """Draws histograms of vote distances, a line for each iteration.

    Args:
        distances: Name of the model to its distances, see
            `tfcaps.rem.vote_distances`.

    Returns:
        A figure with a panel for each model. Areas are 1; the dashed lines are
        the means. The data has counts and means.
    """
    drawing = figure(4.2 * len(distances) + 1.0, 3.4)
    panels = drawing.subplots(
        1, len(distances), sharex=True, sharey=True, squeeze=False
    )[0]
    most = max(len(measured.means) for measured in distances.values())
    data = {}
    for panel, (name, measured) in zip(panels, distances.items(), strict=True):
        density = measured.counts / (
            measured.counts.sum(axis=1, keepdims=True) * np.diff(measured.edges)
        )
        for t, (heights, mean) in enumerate(
            zip(density, measured.means, strict=True)
        ):
            hue = colormaps["viridis"](0.9 * t / max(most - 1, 1))
            panel.stairs(
                heights,
                measured.edges,
                color=hue,
                linewidth=1.4,
                label=t + 1,
            )
            panel.axvline(mean, color=hue, linestyle="--", linewidth=0.9)
        panel.set_title(name, fontsize=10)
        panel.set_xlabel("distance of a vote from its parent")
        panel.grid(alpha=0.3)
        data[name] = {
            "edges": measured.edges,
            "counts": measured.counts,
            "means": measured.means,
        }
    panels[0].set_ylabel("density")
    longest = max(panels, key=lambda panel: len(panel.patches))
    drawing.legend(
        *longest.get_legend_handles_labels(),
        title="iteration",
        loc="outside right upper",
        fontsize=8,
        title_fontsize=8,
    )
    return Drawing(drawing, for_json(data))

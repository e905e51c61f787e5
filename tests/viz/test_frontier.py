"""Entropy against accuracy over settings."""

import numpy as np
import pytest
from matplotlib.collections import PathCollection

from tfcaps import viz

POINTS = [
    {"name": "a", "entropy_bits": 2.0, "accuracy": 0.90, "strategy": "x"},
    {"name": "b", "entropy_bits": 3.0, "accuracy": 0.89, "strategy": "x"},
    {
        "name": "c",
        "entropy_bits": [4.0, 6.0],
        "accuracy_quantized": [0.94, 0.96],
        "strategy": "y",
        "t_score": [0.4, 0.6],
    },
    {"name": "d", "entropy_bits": 0.0, "accuracy": 0.99, "trivial": True},
    {"name": "e", "entropy_bits": 2.0, "accuracy": 0.88, "strategy": "y"},
    {"name": "f", "entropy_bits": 9.0, "accuracy": 0.95, "strategy": "y"},
]


def dots_of(drawing):
    panel = drawing.axes[0]
    return [c for c in panel.collections if isinstance(c, PathCollection)]


def test_the_front_has_the_points_that_no_routed_one_beats():
    drawing, data = viz.frontier(POINTS)
    assert data["front"] == [0, 2]
    (step,) = drawing.axes[0].lines[-1:]
    np.testing.assert_allclose(step.get_xdata(), [2, 5, 9])
    np.testing.assert_allclose(step.get_ydata(), [90, 95, 95])
    assert step.get_drawstyle() == "steps-post"
    drawing, data = viz.frontier(POINTS[3:4])
    legend = [text.get_text() for text in drawing.legends[0].get_texts()]
    assert data["front"] == [] and "Pareto front" not in legend


def test_points_are_means_over_seeds_with_deviations():
    drawing, data = viz.frontier(POINTS)
    point = data["points"][2]
    assert (point["entropy_bits"], point["entropy_bits_deviation"]) == (5, 1)
    assert point["accuracy"] == pytest.approx(95)
    assert point["accuracy_deviation"] == pytest.approx(1)
    assert point["t_score"] == pytest.approx(0.5)
    dots = dots_of(drawing)
    assert len(dots) == 6
    np.testing.assert_allclose(dots[2].get_offsets(), [[5, 95]])
    assert dots[2].get_sizes() > dots[0].get_sizes()
    bars = [
        np.array(c.get_segments()[0])
        for c in drawing.axes[0].collections
        if hasattr(c, "get_segments")
    ]
    np.testing.assert_allclose(bars[0], [[4, 95], [6, 95]])
    np.testing.assert_allclose(bars[1], [[5, 94], [5, 96]])


def test_mistakes_are_explained():
    with pytest.raises(ValueError, match="at least one point. Received: none"):
        viz.frontier([])
    with pytest.raises(ValueError, match="'accuracy_quantized' or 'accuracy'"):
        viz.frontier([{"name": "a", "entropy_bits": 1.0}])

"""Entropy against accuracy over settings."""

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex

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


def test_trivial_points_are_hollow_and_settings_have_looks_of_their_own():
    drawing = viz.frontier(POINTS).figure
    dots = dots_of(drawing)
    faces = [to_hex(c.get_facecolor()[0]) for c in dots]
    edges = [to_hex(c.get_edgecolor()[0]) for c in dots]
    assert faces[3] == "#ffffff" != edges[3]
    assert edges[0] == edges[1] == faces[0]
    assert edges[2] == edges[4] != edges[0]
    legend = [text.get_text() for text in drawing.legends[0].get_texts()]
    assert legend[:3] == ["x", "y", "trivial"]
    assert legend[-1] == "Pareto front"


def test_a_trivial_point_far_below_does_not_squeeze_the_others():
    low = {"name": "low", "entropy_bits": 0.0, "accuracy": 0.1}
    squeezed = viz.frontier([*POINTS, low]).figure.axes[0]
    drawing, data = viz.frontier([*POINTS, {**low, "trivial": True}])
    panel = drawing.axes[0]
    assert squeezed.get_ylim()[0] < 10 and panel.get_ylim()[0] > 80
    assert "low (10 %)" in [text.get_text() for text in panel.texts]
    (at,) = dots_of(drawing)[-1].get_offsets()
    assert panel.get_ylim()[0] < at[1] < 88
    assert data["points"][-1]["accuracy"] == pytest.approx(10)


def test_names_cover_neither_points_nor_each_other(rng):
    points = [
        {
            "name": f"setting {k}",
            "entropy_bits": 4 + rng.random(),
            "accuracy": 0.98 + 0.01 * rng.random(),
        }
        for k in range(10)
    ]
    drawing = viz.frontier(points).figure
    drawing.draw_without_rendering()
    panel = drawing.axes[0]
    texts = [text for text in panel.texts if text.get_text()]
    assert {text.get_text() for text in texts} == {p["name"] for p in points}
    boxes = [text.get_window_extent() for text in texts]
    places = panel.transData.transform(
        [(p["entropy_bits"], 100 * p["accuracy"]) for p in points]
    )
    for k, box in enumerate(boxes):
        assert box.count_overlaps(boxes[:k]) == 0
        assert not any(box.contains(*place) for place in places)
    # Of many only the front is named.
    many = [
        {"name": f"{k}", "entropy_bits": 2.0 + k, "accuracy": 0.9}
        for k in range(20)
    ]
    panel = viz.frontier(many).figure.axes[0]
    assert [text.get_text() for text in panel.texts] == ["0"]


def test_mistakes_are_explained():
    with pytest.raises(ValueError, match="at least one point. Received: none"):
        viz.frontier([])
    with pytest.raises(ValueError, match="'accuracy_quantized' or 'accuracy'"):
        viz.frontier([{"name": "a", "entropy_bits": 1.0}])

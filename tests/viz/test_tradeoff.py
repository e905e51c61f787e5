"""Entropy against accuracy: along a training, and over settings."""

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex

from tfcaps import viz


def rows(count, **more):
    return [
        {
            "epoch": k,
            "sparsity": 0.01 * k,
            "entropy_bits": 3.0 + (-1) ** k,
            "test_accuracy_quantized": 0.9 + 0.0001 * k,
            **more,
        }
        for k in range(count)
    ]


def test_entropy_is_left_and_red_accuracy_right_blue_and_dashed():
    drawing, data = viz.tradeoff(rows(4))
    left, right = drawing.axes
    points, line = left.lines
    assert (points.get_marker(), points.get_linestyle()) == (".", "None")
    np.testing.assert_allclose(line.get_xdata(), [0, 1, 2, 3])
    np.testing.assert_allclose(line.get_ydata(), [4, 2, 4, 2])
    assert line.get_linestyle() == "-"
    red, _, blue = (int(line.get_color()[k : k + 2], 16) for k in (1, 3, 5))
    assert red > blue
    line = right.lines[1]
    np.testing.assert_allclose(line.get_ydata(), [90, 90.01, 90.02, 90.03])
    assert line.get_linestyle() == "--"
    assert left.get_xlabel() == "sparsity (%)"
    assert left.get_ylim()[0] == 0.0
    assert data["models"][""]["accuracy"] == pytest.approx(
        [90, 90.01, 90.02, 90.03]
    )


def test_epochs_count_from_one_and_models_have_panels():
    records = rows(3, model="A") + rows(2, model="B")
    records.append({"model": "B", "epoch": 2, "entropy_bits": 1.0})
    drawing, data = viz.tradeoff(records[::-1], "epoch")
    assert [axes.get_title() for axes in drawing.axes[:2]] == ["B", "A"]
    assert data["models"]["A"]["epoch"] == [1, 2, 3]
    assert data["models"]["B"]["epoch"] == [1, 2]
    assert len({axes.get_ylim() for axes in drawing.axes[:2]}) == 1


def test_lines_through_many_points_are_smoothed_by_local_cubics():
    data = viz.tradeoff(rows(240))[1]["models"][""]
    smooth, raw = data["lines"]["entropy_bits"], data["entropy_bits"]
    window = np.arange(51)
    fit = np.polyfit(window - 25, raw[4:55], 3)
    assert smooth[29] == pytest.approx(fit[-1])
    assert np.ptp(smooth[26:34]) < 0.2 < np.ptp(raw)
    # A quarter of fewer points.
    data = viz.tradeoff(rows(60))[1]["models"][""]
    fit = np.polyfit(np.arange(15) - 7, data["entropy_bits"][:15], 3)
    assert data["lines"]["entropy_bits"][7] == pytest.approx(fit[-1])
    # Of fewer still each point counts.
    data = viz.tradeoff(rows(59))[1]["models"][""]
    assert data["lines"]["entropy_bits"] == data["entropy_bits"]


def test_smoothed_lines_stay_among_the_points():
    records = [{**row, "accuracy_quantized": float(k >= 30)}
               for k, row in enumerate(rows(60))]  # fmt: skip
    data = viz.tradeoff(records)[1]["models"][""]
    assert min(data["lines"]["accuracy"]) == 0.0
    assert max(data["lines"]["accuracy"]) == 100.0


def test_smoothing_keeps_a_cubic():
    records = [{**row, "entropy_bits": 5.0 + 1e-4 * k**3}
               for k, row in enumerate(rows(80))]  # fmt: skip
    data = viz.tradeoff(records)[1]["models"][""]
    np.testing.assert_allclose(
        data["lines"]["entropy_bits"], data["entropy_bits"], rtol=1e-6
    )


def test_levels_are_joined_on_a_logarithmic_axis_with_the_choice_marked():
    records = [
        {"levels": k, "accuracy_quantized": 0.5 + k / 1000, "entropy_bits": b}
        for k, b in zip(range(2, 15), [1, 5] * 6 + [1], strict=True)
    ]
    drawing, data = viz.tradeoff(records[::-1], "levels", chosen=11)
    left = drawing.axes[0]
    assert left.get_xscale() == "log"
    assert data["models"][""]["levels"] == list(range(2, 15))
    np.testing.assert_allclose(left.lines[1].get_ydata(), [1, 5] * 6 + [1])
    assert left.lines[2].get_xdata() == [11, 11]
    drawing.draw_without_rendering()
    ticks = [text.get_text() for text in left.get_xticklabels()]
    assert ticks[:3] == ["2", "3", "4"]
    texts = [text.get_text() for text in drawing.legends[0].get_texts()]
    assert texts[-1] == "chosen: K = 11"


def test_mistakes_of_tradeoff_are_explained():
    with pytest.raises(ValueError, match="`x` must be one of .*'seconds'"):
        viz.tradeoff(rows(2), "seconds")
    with pytest.raises(ValueError, match="No record has 'levels'"):
        viz.tradeoff(rows(2), "levels")


def dots_of(drawing):
    panel = drawing.axes[0]
    return [c for c in panel.collections if isinstance(c, PathCollection)]


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


def test_the_front_has_the_points_that_no_routed_one_beats():
    drawing, data = viz.frontier(POINTS)
    assert data["front"] == [0, 2]
    (step,) = drawing.axes[0].lines[-1:]
    np.testing.assert_allclose(step.get_xdata(), [2, 5, 9])
    np.testing.assert_allclose(step.get_ydata(), [90, 95, 95])
    assert step.get_drawstyle() == "steps-post"


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


def test_forty_settings_have_looks_of_their_own():
    points = [
        {"name": "a", "entropy_bits": k, "accuracy": 0.9, "strategy": f"s{k}"}
        for k in range(40)
    ]
    dots = dots_of(viz.frontier(points).figure)
    looks = {(to_hex(c.get_edgecolor()[0]), str(c.get_paths())) for c in dots}
    assert len(looks) == 40


def test_trivial_points_are_hollow_and_settings_have_colours():
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


@pytest.mark.slow
def test_a_trivial_point_far_below_does_not_squeeze_the_others():
    def heights(*others):
        drawing, data = viz.frontier([*POINTS, *others])
        assert len(data["points"]) == len(POINTS) + len(others)
        return drawing

    low = {"name": "low", "entropy_bits": 0.0, "accuracy": 0.1}
    squeezed = heights(low).axes[0]
    trivial = heights({**low, "trivial": True}).axes[0]
    assert squeezed.get_ylim()[0] < 10
    assert trivial.get_ylim() == viz.frontier(POINTS).figure.axes[0].get_ylim()
    assert "10 %" in [text.get_text() for text in trivial.texts]
    edge = dots_of(trivial.figure)[-1].get_offsets()
    np.testing.assert_allclose(edge, [[0, trivial.get_ylim()[0]]])


def test_names_cover_neither_points_nor_each_other():
    rng = np.random.default_rng(0)
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


def test_of_many_points_only_the_front_is_named():
    points = [
        {"name": f"{k}", "entropy_bits": 2.0 + k, "accuracy": 0.9}
        for k in range(20)
    ]
    drawing = viz.frontier(points).figure
    assert [t.get_text() for t in drawing.axes[0].texts] == ["0"]


def test_without_routed_points_there_is_no_front():
    drawing, data = viz.frontier(POINTS[3:4])
    assert data["front"] == []
    assert "Pareto front" not in [
        text.get_text() for text in drawing.legends[0].get_texts()
    ]


def test_mistakes_of_frontier_are_explained():
    with pytest.raises(ValueError, match="at least one point. Received: none"):
        viz.frontier([])
    with pytest.raises(ValueError, match="'accuracy_quantized' or 'accuracy'"):
        viz.frontier([{"name": "a", "entropy_bits": 1.0}])
    with pytest.raises(AttributeError, match="same numbers into `table.md`"):
        viz.comparison([{"name": "a"}])

"""Figures: what they show, read from the drawing itself."""

import numpy as np
import pytest

from tfcaps import viz
from tfcaps.rem import CouplingDictionary


@pytest.fixture
def trees():
    """Class 0: one tree twice, another once; class 1: one; class 2: none."""
    trees = CouplingDictionary(3)
    trees.update(
        [[10, 0, 3, 3], [10, 0, 3, 3], [0, 10, 3, 3], [5, 4, 3, 3]],
        [0, 0, 0, 1],
    )
    return trees


def test_keys_per_class_draws_a_bar_for_each_class_and_model(trees):
    drawing = viz.keys_per_class({"A": trees, "B": trees})
    bars = [patch.get_height() for patch in drawing.axes[0].patches]
    assert bars == [2, 1, 0] * 2
    labels = [text.get_text() for text in drawing.axes[0].get_xticklabels()]
    assert labels == ["0", "1", "2"]


def test_histograms_show_mean_couplings_weighted_by_counts(trees):
    drawing = viz.coupling_histograms({"A": trees}, levels=11)
    panels = drawing.axes
    assert len(panels) == 3
    # Means of class 0: (2*1.0 + 0)/3, (0 + 1.0)/3, 0.3, 0.3.
    corners = {
        (round(float(x), 2), round(float(y)))
        for x, y in panels[0].patches[0].get_xy()
    }
    assert {(0.25, 3), (0.35, 3), (0.65, 1), (0.75, 1)} <= corners
    assert len(panels[2].patches) == 0


def test_parse_trees_join_only_children_above_the_uniform_coupling(trees):
    drawing = viz.parse_trees(trees, levels=11, class_names=["a", "b", "c"])
    panels = drawing.axes
    assert panels[0].get_title() == "a: 67 % of 3 samples"
    assert len(panels[0].lines) == 1  # only the coupling 1.0 exceeds 1/3
    assert panels[0].lines[0].get_linewidth() == pytest.approx(3.0)
    assert len(panels[1].lines) == 2
    assert panels[2].get_title() == "c: never predicted"


def test_uniform_couplings_give_no_edges():
    trees = CouplingDictionary(10)
    trees.update(np.ones((4, 6), int), [0, 0, 1, 1])
    drawing = viz.parse_trees(trees, levels=11)
    assert all(len(panel.lines) == 0 for panel in drawing.axes)


def test_curves_draw_a_line_for_each_model_and_skip_what_is_missing():
    records = [
        {"model": m, "epoch": e, "entropy_bits": 3.0 - e, "sparsity": 0.1 * e}
        for m in ("A", "B")
        for e in range(3)
    ]
    drawing = viz.curves(records)
    accuracy, entropy, *_, sparsity = drawing.axes
    assert not accuracy.lines
    assert len(entropy.lines) == len(sparsity.lines) == 2
    assert entropy.lines[0].get_ydata().tolist() == [3.0, 2.0, 1.0]
    assert entropy.lines[0].get_xdata().tolist() == [1, 2, 3]
    assert sparsity.lines[1].get_ydata()[-1] == pytest.approx(20.0)


def test_the_report_holds_everything_it_shows_and_escapes_text(trees, tmp_path):
    picture = tmp_path / "keys.png"
    viz.keys_per_class({"A": trees}).savefig(picture)
    viz.write_report(
        tmp_path / "report.html",
        title="<b>run</b>",
        subtitle="s",
        table=(("model", "accuracy"), [("A", "97 %")]),
        verdicts=[("trivial & empty", True), ("fine", False)],
        figures=[(picture, "Keys", "caption")],
        settings={"seed": "0"},
    )
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "&lt;b&gt;run&lt;/b&gt;" in page and "<b>" not in page
    assert 'src="data:image/png;base64,' in page
    assert "http" not in page
    assert '<p class="verdict trivial">trivial &amp; empty</p>' in page
    assert "<td>97 %</td>" in page and "<td>seed</td><td>0</td>" in page

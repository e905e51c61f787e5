"""Measures over the epochs, and entropy and accuracy against a setting."""

import numpy as np
import pytest

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


def test_entropy_is_left_and_red_accuracy_right_blue_and_dashed():
    drawing = viz.tradeoff(rows(4))
    left, right = drawing.axes
    (line,) = left.lines
    np.testing.assert_allclose(line.get_xdata(), [0, 1, 2, 3])
    np.testing.assert_allclose(line.get_ydata(), [4, 2, 4, 2])
    assert line.get_linestyle() == "-"
    red, _, blue = (int(line.get_color()[k : k + 2], 16) for k in (1, 3, 5))
    assert red > blue
    (line,) = right.lines
    np.testing.assert_allclose(line.get_ydata(), [90, 90.01, 90.02, 90.03])
    assert line.get_linestyle() == "--"
    assert left.get_xlabel() == "sparsity (%)"
    assert left.get_ylim()[0] == 0.0


def test_epochs_count_from_one_and_models_have_panels():
    records = rows(3, model="A") + rows(2, model="B")
    records.append({"model": "B", "epoch": 2, "entropy_bits": 1.0})
    drawing = viz.tradeoff(records[::-1], "epoch")
    shown = {a.get_title(): [*a.lines[0].get_xdata()] for a in drawing.axes[:2]}
    assert list(shown.items()) == [("B", [1, 2]), ("A", [1, 2, 3])]
    for axes in (drawing.axes[:2], drawing.axes[2:]):
        assert len({one.get_ylim() for one in axes}) == 1


def test_levels_are_joined_on_a_logarithmic_axis():
    records = [
        {"levels": k, "accuracy_quantized": 0.5 + k / 1000, "entropy_bits": b}
        for k, b in zip(range(2, 15), [1, 5] * 6 + [1], strict=True)
    ]
    drawing = viz.tradeoff(records[::-1], "levels")
    left = drawing.axes[0]
    assert left.get_xscale() == "log"
    np.testing.assert_allclose(left.lines[0].get_ydata(), [1, 5] * 6 + [1])
    drawing.draw_without_rendering()
    ticks = [text.get_text() for text in left.get_xticklabels()]
    assert ticks[:3] == ["2", "3", "4"]


def test_mistakes_are_explained():
    with pytest.raises(ValueError, match="`x` must be one of .*'seconds'"):
        viz.tradeoff(rows(2), "seconds")
    with pytest.raises(ValueError, match="No record has 'levels'"):
        viz.tradeoff(rows(2), "levels")

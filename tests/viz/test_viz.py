"""Figures of dictionaries and decoders, drawings, and the report."""

import io

import matplotlib
import numpy as np
import pytest
from PIL import Image

from tfcaps import viz
from tfcaps.rem import CouplingDictionary
from tfcaps.viz.drawing import picture

NAMES = ["bar disc / triangle ring square", "b", "c"]


def dictionary(classes, keys, predicted):
    trees = CouplingDictionary(classes)
    trees.update(np.array(keys), np.array(predicted))
    return trees


@pytest.fixture
def trees():
    """Class 0: one tree twice, another once; class 1: one; class 2: none."""
    keys = [[10, 0, 3, 3], [10, 0, 3, 3], [0, 10, 3, 3], [5, 4, 3, 3]]
    return dictionary(3, keys, [0, 0, 0, 1])


def test_keys_per_class_draws_a_bar_for_each_class_and_model(trees):
    drawing = viz.keys_per_class({"A": trees, "B": trees})
    bars = [patch.get_height() for patch in drawing.axes[0].patches]
    assert bars == [2, 1, 0] * 2
    labels = [text.get_text() for text in drawing.axes[0].get_xticklabels()]
    assert labels == ["0", "1", "2"]
    lines = drawing.axes[0].collections[-1].get_segments()
    assert [line[0, 1] for line in lines] == [3, 1, 0]  # samples


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
    # Four epochs are told apart by colours.
    epochs = {f"epoch {k}": trees for k in (1, 5, 20, 80)}
    drawing = viz.coupling_histograms(epochs, levels=11)
    legend = drawing.legends[0]
    assert [text.get_text() for text in legend.get_texts()] == list(epochs)
    colours = {patch.get_facecolor()[:3] for patch in legend.get_patches()}
    assert len(colours) == 4
    # Numbers of many children are on a logarithmic axis.
    assert drawing.axes[0].get_yscale() == "linear"
    many = dictionary(2, np.full((2, 60), 3), [0, 1])
    drawing = viz.coupling_histograms({"A": many}, levels=11)
    assert {panel.get_yscale() for panel in drawing.axes} == {"log"}


def test_parse_trees_join_only_children_above_the_uniform_coupling(trees):
    drawing = viz.most_frequent_trees(trees, levels=11, class_names=NAMES)
    panels = drawing.axes
    assert panels[0].get_title() == "67 % of 3 samples"
    # Long names are drawn on several lines.
    shown = panels[0].texts[0].get_text()
    assert shown == "bar disc / triangle\nring square"
    # Of the first only the coupling 1.0 exceeds 1/3.
    widths = [panel.collections[0].get_linewidths() for panel in panels[:2]]
    assert widths[0] == pytest.approx([4.0]) and len(widths[1]) == 2
    assert panels[2].get_title() == "c: never predicted"


def test_uniform_couplings_give_no_edges_also_if_they_are_rounded_up():
    for classes, key, lines in (
        (10, [1, 1, 1, 1], 0),
        (6, [2, 2, 2, 2], 0),  # 1/6 becomes the third of 11 levels, 0.2
        (6, [1, 2, 3, 10], 2),
    ):
        trees = dictionary(classes, [key], [0])
        panels = viz.most_frequent_trees(trees, levels=11).axes
        assert len(panels[0].collections[0].get_segments()) == lines


def test_couplings_at_midrise_levels_are_the_middles_of_bins():
    trees = dictionary(2, [[0, 3], [0, 3]], [0, 0])
    panel, _ = viz.most_frequent_trees(trees, 4, mode="midrise").axes
    assert panel.collections[0].get_linewidths() == [0.5 + 3.5 * 0.875]
    panel, _ = viz.coupling_histograms({"a": trees}, 4, mode="midrise").axes
    corners = panel.patches[0].get_xy()
    assert {*map(tuple, corners)} >= {(0.25, 1.0), (0.75, 1.0), (1.0, 1.0)}


def test_reconstructions_stand_below_their_images(rng):
    images, decoded = rng.random((2, 3, 4, 4, 1))
    decoded[0, 0, 0] = 1.2
    drawing = viz.reconstructions(images, decoded)
    shown = [panel.images[0].get_array() for panel in drawing.axes]
    assert len(shown) == 6
    np.testing.assert_allclose(shown[1], 255 * images[1, ..., 0], atol=0.51)
    np.testing.assert_allclose(shown[4], 255 * decoded[1, ..., 0], atol=0.51)
    assert shown[3][0, 0] == 255
    with pytest.raises(ValueError, match="must have the same shape"):
        viz.reconstructions(images, decoded[:2])


@pytest.mark.parametrize("name", ["keys.v1", "keys.v1.png"])
def test_a_drawing_is_saved_as_a_notebook_shows_it(trees, tmp_path, name):
    drawing = viz.keys_per_class({"A": trees})
    picture = drawing.save(str(tmp_path / name))
    assert picture == tmp_path / "keys.v1.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    width, height = drawing.get_size_inches() * drawing.dpi
    pixels = matplotlib.image.imread(picture)
    assert pixels.shape[:2] == (round(height), round(width))
    with Image.open(io.BytesIO(drawing._repr_png_())) as shown:
        assert shown.size == (round(width), round(height))


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.0, 0.5], [0, 128]),
        ([0.0, 1.0, 2.0], [0, 128, 255]),
        ([-1.0, 0.0, 1.0], [0, 128, 255]),
        ([-0.4, -0.4], [0, 0]),
    ],
)
def test_images_beyond_0_to_1_are_stretched_and_others_are_not(values, shown):
    image = np.array([values], "float32")[..., np.newaxis]
    with np.errstate(invalid="raise", divide="raise"):
        np.testing.assert_array_equal(picture(image), [shown])


def test_the_report_holds_everything_it_shows_and_escapes_text(trees, tmp_path):
    picture = tmp_path / "keys.png"
    viz.keys_per_class({"A": trees}).savefig(picture)
    settings = {"seed": "0", "data": "$title"}.items()
    viz.write_report(
        tmp_path / "report.html",
        viz.Section(
            "<b>run</b>",
            sentences=[("trivial & empty", True), ("fine", False)],
            figures=[(picture, "First", "caption")],
            table=(("model", "accuracy"), [("A", "97 %")]),
            note="what it <is>",
            texts={"A": "T-score  <0.5"},
        ),
        [
            viz.Section("More", figures=[(picture, "Keys", "caption")] * 3),
            viz.Section("Settings", table=(("a", "b"), settings)),
        ],
    )
    page = (tmp_path / "report.html").read_text("utf-8")
    for text in (
        "<title>&lt;b&gt;run&lt;/b&gt;</title>",
        '<p class="verdict trivial">trivial &amp; empty</p>',
        'src="data:image/png;base64,',
        "<td>97 %</td>",
        '<p class="note">what it &lt;is&gt;</p>',
        "<pre><strong>A</strong>\nT-score  &lt;0.5</pre>",
        "<td>seed</td><td>0</td>",
        "<td>$title</td>",
    ):
        assert text in page
    assert "<b>" not in page and "http" not in page and page.count("$") == 1
    # In this order, and what is folded away comes last.
    order = ["fine", "First", "97 %", "<details>", "More", "Settings"]
    places = [page.index(text) for text in order]
    assert places == sorted(places)
    assert page.count("<details>") == page.count("</details>") == 2
    # Three figures get links.
    assert page.count("<nav>") == 1
    for k in (1, 2, 3):
        assert page.count(f'href="#figure-{k}"') == 1
        assert page.count(f'id="figure-{k}"') == 1

"""Figures: what they show, read from the drawing itself."""

import io
import json

import matplotlib
import numpy as np
import pytest
from PIL import Image

from tfcaps import viz
from tfcaps.rem import CouplingDictionary
from tfcaps.viz.drawing import picture


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
    drawing, data = viz.keys_per_class({"A": trees, "B": trees})
    bars = [patch.get_height() for patch in drawing.axes[0].patches]
    assert bars == [2, 1, 0] * 2
    labels = [text.get_text() for text in drawing.axes[0].get_xticklabels()]
    assert labels == data["classes"] == ["0", "1", "2"]
    assert data["models"]["B"] == {"keys": [2, 1, 0], "samples": [3, 1, 0]}


def test_histograms_show_mean_couplings_weighted_by_counts(trees):
    drawing, data = viz.coupling_histograms({"A": trees}, levels=11)
    panels = drawing.axes
    assert len(panels) == 3
    # Means of class 0: (2*1.0 + 0)/3, (0 + 1.0)/3, 0.3, 0.3.
    corners = {
        (round(float(x), 2), round(float(y)))
        for x, y in panels[0].patches[0].get_xy()
    }
    assert {(0.25, 3), (0.35, 3), (0.65, 1), (0.75, 1)} <= corners
    assert len(panels[2].patches) == 0
    assert data["children"]["A"]["0"] == [0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0]
    assert data["edges"][3:5] == pytest.approx([0.25, 0.35])
    assert set(data["children"]["A"]) == {"0", "1"}


def test_parse_trees_join_only_children_above_the_uniform_coupling(trees):
    names = ["a", "b", "c"]
    drawing, data = viz.most_frequent_trees(trees, levels=11, class_names=names)
    panels = drawing.axes
    assert panels[0].get_title() == "67 % of 3 samples"
    assert panels[0].texts[0].get_text() == "a"
    assert len(panels[0].lines) == 1  # only the coupling 1.0 exceeds 1/3
    assert panels[0].lines[0].get_linewidth() == pytest.approx(3.0)
    assert len(panels[1].lines) == 2
    assert panels[2].get_title() == "c: never predicted"
    first, *_, last = data["classes"]
    assert first == {
        "class": "a",
        "samples": 3,
        "with_tree": 2,
        "couplings": pytest.approx([1.0, 0.0, 0.3, 0.3]),
    }
    assert last["samples"] == last["with_tree"] == len(last["couplings"]) == 0


def test_long_names_are_drawn_on_several_lines(trees):
    names = ["bar disc / triangle ring square", "a", "b"]
    drawing, data = viz.most_frequent_trees(trees, levels=11, class_names=names)
    shown = drawing.axes[0].texts[0].get_text()
    assert shown == "bar disc / triangle\nring square"
    assert data["classes"][0]["class"] == names[0]


def test_uniform_couplings_give_no_edges():
    trees = CouplingDictionary(10)
    trees.update(np.ones((4, 6), int), [0, 0, 1, 1])
    drawing = viz.most_frequent_trees(trees, levels=11).figure
    assert all(len(panel.lines) == 0 for panel in drawing.axes)


def test_uniform_couplings_that_are_rounded_up_give_no_edges():
    trees = CouplingDictionary(6)  # 1/6 becomes the third of 11 levels, 0.2
    trees.update(np.full((1, 4), 2), [0])
    trees.update(np.array([[1, 2, 3, 10]]), [1])
    panels = viz.most_frequent_trees(trees, levels=11).figure.axes
    assert [len(panel.lines) for panel in panels[:2]] == [0, 2]


def test_histograms_tell_four_epochs_apart_by_colour(trees):
    epochs = {f"epoch {k}": trees for k in (1, 5, 20, 80)}
    drawing, data = viz.coupling_histograms(epochs, levels=11)
    legend = drawing.legends[0]
    assert [text.get_text() for text in legend.get_texts()] == list(epochs)
    colours = {patch.get_facecolor()[:3] for patch in legend.get_patches()}
    assert len(colours) == 4
    assert drawing.axes[0].get_yscale() == "linear"
    assert data["children"]["epoch 1"] == data["children"]["epoch 80"]


def test_numbers_of_many_children_are_on_a_logarithmic_axis():
    trees = CouplingDictionary(2)
    trees.update(np.full((2, 60), 3), [0, 1])
    drawing = viz.coupling_histograms({"A": trees}, levels=11).figure
    assert {panel.get_yscale() for panel in drawing.axes} == {"log"}


def test_reconstructions_stand_below_their_images():
    rng = np.random.default_rng(0)
    images, decoded = rng.random((2, 3, 4, 4, 1))
    decoded[0, 0, 0] = 1.2
    drawing, data = viz.reconstructions(images, decoded)
    shown = [panel.images[0].get_array() for panel in drawing.axes]
    assert len(shown) == 6
    np.testing.assert_allclose(shown[1], 255 * images[1, ..., 0], atol=0.51)
    np.testing.assert_allclose(shown[4], 255 * decoded[1, ..., 0], atol=0.51)
    assert data["decoded"][0][0][0] == 255
    assert data["images"][2] == shown[2].tolist()
    with pytest.raises(ValueError, match="must have the same shape"):
        viz.reconstructions(images, decoded[:2])


def test_perturbations_have_a_row_for_each_component():
    decoded = np.random.default_rng(0).random((2, 3, 4, 4, 2))
    drawing, data = viz.perturbations(decoded, np.array([-0.1, 0.0, 0.1]))
    assert [p.get_title() for p in drawing.axes[:3]] == [
        "-0.10", "+0.00", "+0.10",
    ]  # fmt: skip
    # Two views stand side by side.
    right = 255 * decoded[1, 2, ..., 1]
    shown = drawing.axes[5].images[0].get_array()
    np.testing.assert_allclose(shown[:, 4:], right, atol=0.51)
    assert data["offsets"] == [-0.1, 0.0, 0.1]
    assert data["decoded"][1][2] == shown.tolist()


def test_a_notebook_shows_a_drawing(trees):
    drawing = viz.keys_per_class({"A": trees})
    with Image.open(io.BytesIO(drawing._repr_png_())) as picture:
        width, height = drawing.figure.get_size_inches() * drawing.figure.dpi
        assert picture.size == (round(width), round(height))


@pytest.mark.parametrize("name", ["keys.v1", "keys.v1.png"])
def test_a_drawing_is_saved_as_picture_and_data(trees, tmp_path, name):
    drawing = viz.keys_per_class({"A": trees})
    picture = drawing.save(str(tmp_path / name))
    assert picture == tmp_path / "keys.v1.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    data = json.loads((tmp_path / "keys.v1.json").read_text("utf-8"))
    assert data == drawing.data
    pixels = matplotlib.image.imread(picture)
    width, height = drawing.figure.get_size_inches() * drawing.figure.dpi
    assert pixels.shape[:2] == (round(height), round(width))


def test_the_report_holds_everything_it_shows_and_escapes_text(trees, tmp_path):
    picture = tmp_path / "keys.png"
    viz.keys_per_class({"A": trees}).figure.savefig(picture)
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
            viz.Section(
                "Settings",
                table=(("a", "b"), {"seed": "0", "data": "$title"}.items()),
            ),
        ],
    )
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "&lt;b&gt;run&lt;/b&gt;" in page and "<b>" not in page
    assert 'src="data:image/png;base64,' in page
    assert "http" not in page
    assert '<p class="verdict trivial">trivial &amp; empty</p>' in page
    assert page.count("$") == 1 and "<td>$title</td>" in page
    assert "<title>&lt;b&gt;run&lt;/b&gt;</title>" in page
    assert "<td>97 %</td>" in page and "<td>seed</td><td>0</td>" in page
    assert '<p class="note">what it &lt;is&gt;</p>' in page
    assert "<pre><strong>A</strong>\nT-score  &lt;0.5</pre>" in page
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


def test_couplings_at_midrise_levels_are_the_middles_of_bins():
    trees = CouplingDictionary(2)
    trees.update(np.array([[0, 3], [0, 3]]), np.array([0, 0]))
    drawn = viz.most_frequent_trees(trees, 4, mode="midrise").data
    shown = drawn["classes"][0]["couplings"]
    assert shown == pytest.approx([0.125, 0.875])
    bins = viz.coupling_histograms({"a": trees}, 4, mode="midrise").data
    assert bins["edges"] == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    assert list(bins["children"]["a"].values()) == [[1, 0, 0, 1]]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.0, 0.5], [0, 128]),
        ([0.0, 1.0, 2.0], [0, 128, 255]),
        ([-1.0, 0.0, 1.0], [0, 128, 255]),
    ],
)
def test_images_beyond_0_to_1_are_stretched_and_others_are_not(values, shown):
    image = np.array([values], "float32")[..., np.newaxis]
    np.testing.assert_array_equal(picture(image), [shown])


def test_a_constant_image_beyond_the_range_is_black():
    with np.errstate(invalid="raise", divide="raise"):
        shown = picture(np.full((4, 4, 1), -0.4, "float32"))
    np.testing.assert_array_equal(shown, np.zeros((4, 4), np.uint8))


def test_dictionary_images_are_means_of_a_class_and_key(rng):
    keys = np.array([[1, 2], [1, 2], [3, 0], [1, 2], [1, 2], [3, 0], [0, 0]])
    predicted = np.array([0, 0, 0, 1, 0, 1, 1])
    images = rng.random((7, 4, 4, 1))
    drawing, data = viz.dictionary_images(
        images, keys, predicted, 3, class_names=["cat", "dog", "bee"], columns=2
    )
    panels = np.array(drawing.axes).reshape(2, 2)
    titles = [[panel.get_title() for panel in row] for row in panels]
    assert titles == [["3", "1"], ["1", "1"]]
    mean = 255 * images[[0, 1, 4], ..., 0].mean(axis=0)
    np.testing.assert_allclose(
        panels[0, 0].images[0].get_array(), mean, atol=0.51
    )
    assert panels[0, 0].get_ylabel() == "cat\n2 keys"
    assert panels[1, 1].get_ylabel() == ""
    first, second = data["classes"]
    assert first["shown"][0]["key"] == [1, 2]
    assert [part["count"] for part in first["shown"]] == [3, 1]
    # Ties are in the order of the keys.
    assert [part["key"] for part in second["shown"]] == [[0, 0], [1, 2]]
    assert second["keys"] == 3


def test_dictionary_images_need_images_keys_and_classes():
    images = np.zeros((4, 2, 2, 1), np.uint8)
    with pytest.raises(ValueError, match="0 images, 0 keys, 0"):
        viz.dictionary_images(images[:0], np.zeros((0, 5), int), [], 3)
    with pytest.raises(ValueError, match="4 images, 3 keys, 4"):
        viz.dictionary_images(images, np.zeros((3, 5), int), [1] * 4, 3)

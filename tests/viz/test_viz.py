"""Figures are read from the drawings themselves, and so is the report."""

import io
import re

import matplotlib
import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image

from tests.tolerance import SUMS
from tfcaps import viz
from tfcaps.rem import CouplingDictionary
from tfcaps.rem.parse.parse_tree import traced_back


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


def test_rows_of_pictures_have_names_and_titles(rng):
    images, decoded = rng.random((2, 3, 4, 4, 1))
    decoded[0, 0, 0] = 1.2
    drawing = viz.picture_rows([images, decoded], ["a", "b"], [*"xyz"])
    shown = [panel.images[0].get_array() for panel in drawing.axes]
    assert len(shown) == 6
    np.testing.assert_allclose(shown[1], 255 * images[1, ..., 0], atol=0.51)
    np.testing.assert_allclose(shown[4], 255 * decoded[1, ..., 0], atol=0.51)
    assert shown[3][0, 0] == 255
    assert [drawing.axes[k].get_ylabel() for k in (0, 3)] == ["a", "b"]
    assert [panel.get_title() for panel in drawing.axes[:3]] == [*"xyz"]
    with pytest.raises(ValueError, match="must have the same shape"):
        viz.picture_rows([images, decoded[:2]], ["a", "b"])


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
        steps=[viz.Step("run <it>", "Try", "guide.md"), viz.Step("b", "End")],
        words={"Tree": "what is <below>"},
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
        '<a href="#words">',
        "<dt>Tree</dt><dd>what is &lt;below&gt;</dd>",
        'Try (<a href="guide.md">more</a>):<br><code>run &lt;it&gt;</code>',
    ):
        assert text in page
    assert "<b>" not in page and "http" not in page and page.count("$") == 1
    # In this order, and what is folded away comes last.
    order = ["fine", "First", "97 %", "<details>", "More", "Settings"]
    order += ["<dt>", "What to do next", "End"]
    places = [page.index(text) for text in order]
    assert places == sorted(places)
    assert page.count("<details>") == page.count("</details>") == 3
    # Three figures get links.
    assert page.count("<nav>") == 1
    for k in (1, 2, 3):
        assert page.count(f'href="#figure-{k}"') == 1
        assert page.count(f'id="figure-{k}"') == 1


def test_panels_are_tiles_that_stand_below_each_other(tmp_path):
    drawing = viz.curves(epochs_of(3, model="A"))
    path = drawing.save(tmp_path / "curves")
    page = tmp_path / "report.html"
    viz.write_report(page, viz.Section("A", figures=[(path, "B", "C")]))
    text = page.read_text("utf-8")
    boxes = [box for row in drawing.tiles for box in row]
    assert text.count("data:image/png;base64,") == len(boxes) == 1 + 3
    sides = [right - left for left, _, right, _ in boxes]
    least = [int(n) for n in re.findall(r"<img [^>]*min-width:(\d+)px", text)]
    assert least == [round(0.6 * side) for side in sides]
    # On a telephone a panel is as wide as the page, or its letters are large.
    assert max(least) < 358 and sum(sides[1:]) <= 1080
    # Pictures of others are one tile, and paragraphs do not break rows.
    drawing.savefig(path)
    row = "T-score of the 1205 children left  " + "1 " * 30
    texts = {"D": f"{row}\n{'word ' * 30}"}
    section = viz.Section("A", figures=[(path, "B", "C")], texts=texts)
    viz.write_report(page, section)
    text = page.read_text("utf-8")
    assert text.count("data:image/png;base64,") == 1
    assert f"\n{row}\nword" in text and "word " * 30 not in text


def epochs_of(count, **more):
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
    # Measures that no record has are left out.
    entropy, sparsity, *more = drawing.axes
    assert not any(panel.has_data() for panel in more)
    assert len(entropy.lines) == len(sparsity.lines) == 2
    assert entropy.lines[0].get_ydata().tolist() == [3.0, 2.0, 1.0]
    assert entropy.lines[0].get_xdata().tolist() == [1, 2, 3]
    assert sparsity.lines[1].get_ydata()[-1] == pytest.approx(20.0)
    # Each panel is a tile, after the legend.
    (legend,), panels = drawing.tiles
    (left, _, between, bottom), (start, *_) = panels
    assert legend[3] < bottom and left < between <= start


def test_entropy_is_left_and_accuracy_right_and_dashed():
    drawing = viz.tradeoff(epochs_of(4))
    left, right = drawing.axes
    (line,) = left.lines
    np.testing.assert_allclose(line.get_xdata(), [0, 1, 2, 3])
    np.testing.assert_allclose(line.get_ydata(), [4, 2, 4, 2])
    assert line.get_linestyle() == "-"
    (line,) = right.lines
    np.testing.assert_allclose(line.get_ydata(), [90, 90.01, 90.02, 90.03])
    assert line.get_linestyle() == "--"
    assert left.get_xlabel() == "sparsity (%)"
    assert left.get_ylim()[0] < 0 and left.get_ylim()[1] > 4.1


def test_epochs_count_from_one_and_models_have_panels():
    records = epochs_of(3, model="A") + epochs_of(2, model="B")
    records.append({"model": "B", "epoch": 2, "entropy_bits": 1.0})
    drawing = viz.tradeoff(records[::-1], "epoch")
    shown = {a.get_title(): [*a.lines[0].get_xdata()] for a in drawing.axes[:2]}
    assert list(shown.items()) == [("B", [1, 2]), ("A", [1, 2, 3])]
    for axes in (drawing.axes[:2], drawing.axes[2:]):
        assert len({one.get_ylim() for one in axes}) == 1


def test_mistakes_of_curves_are_explained():
    with pytest.raises(ValueError, match="No record has one of test_accuracy"):
        viz.curves([{"model": "A", "epoch": 0, "loss": 0.4}])
    with pytest.raises(ValueError, match="`x` must be one of .*'seconds'"):
        viz.tradeoff(epochs_of(2), "seconds")
    with pytest.raises(ValueError, match="No record has 'levels'"):
        viz.tradeoff(epochs_of(2), "levels")


def tree_of(children=3, roots=(1,)):
    couplings = np.full((children, 2), 0.5)
    couplings[0], couplings[-1] = [0.3, 0.7], [0.1, 0.9]
    activations = [np.linspace(0.2, 0.8, children), np.array([0.25, 0.75])]
    return traced_back(activations, [couplings], roots, [0.5])


def lines_of(panel):
    [lines] = [c for c in panel.collections if hasattr(c, "get_segments")]
    return lines


def dots_of(panel):
    """Returns positions of the dots, those not reached first if drawn."""
    dots = [c for c in panel.collections if not hasattr(c, "get_segments")]
    return [d.get_offsets().tolist() for d in dots]


def test_a_parse_tree_has_a_line_for_each_edge():
    tree = tree_of()
    drawing = viz.parse_tree(tree, class_names=["a", "b"])
    panel = drawing.axes[0]
    lines = lines_of(panel)
    # The weaker one first, so that the stronger one lies over it.
    ends = [[[1 / 6, 0], [0.75, 1]], [[5 / 6, 0], [0.75, 1]]]
    np.testing.assert_allclose(np.array(lines.get_segments()), ends)
    widths, opacities = lines.get_linewidths(), lines.get_colors()[:, 3]
    assert widths[0] < widths[1] and opacities[0] < opacities[1]
    below, reached_below, above, reached_above = dots_of(panel)
    np.testing.assert_allclose(below, [[0.5, 0]])
    np.testing.assert_allclose(reached_below, [[1 / 6, 0], [5 / 6, 0]])
    np.testing.assert_allclose(above, [[0.25, 1]])
    np.testing.assert_allclose(reached_above, [[0.75, 1]])
    drawing.draw_without_rendering()
    colours = panel.collections[2].get_facecolors()
    np.testing.assert_allclose(colours, colormaps["YlOrRd"]([0.2, 0.8]))
    assert [text.get_text() for text in panel.texts] == ["b"]


RNG = np.random.default_rng(0)
GREY = RNG.random((3, 4, 5, 1))
MAPS = RNG.normal(size=(3, 4, 5)) + 5.0
ANIMALS = ["cat", "dog", "bee"]


def shown_by(maps, classes=(2, 0, 1)):
    lengths = np.eye(3)[list(classes)]
    return {"lengths": lengths, "classes": np.array(classes), "saliency": maps}


def panels_of(drawing, rows, columns):
    return np.array(drawing.axes).reshape(rows, columns)


@pytest.mark.parametrize("labels", [[0, 1, 2], [0.0, 1.0, 2.0], np.eye(3)])
def test_each_row_is_a_model(labels):
    models = {"A": shown_by(MAPS), "B": shown_by(MAPS[::-1], (0, 0, 2))}
    drawing = viz.saliency(GREY, models, labels=labels, class_names=ANIMALS)
    panels = panels_of(drawing, 3, 3)
    titles = [[p.get_title() for p in row] for row in panels]
    assert titles == [
        ANIMALS, ["bee", "cat", "dog"], ["cat", "cat", "bee"]
    ]  # fmt: skip
    rows = [row[0].get_ylabel() for row in panels]
    assert rows == ["image", "A", "B"]
    assert len(panels[0, 0].images) == 1
    image, over = panels[1, 2].images
    shown = 255 * GREY[2, ..., 0]
    np.testing.assert_allclose(image.get_array(), shown, atol=0.51)
    low, high = MAPS[2].min(), MAPS[2].max()
    stretched = (MAPS[2] - low) / (high - low)
    np.testing.assert_allclose(over.get_array(), stretched, atol=SUMS)
    assert over.get_alpha() == 0.5 and over.get_clim() == (0, 1)


def test_images_in_colour_and_standardised_ones_are_shown():
    colour = (255 * RNG.random((3, 4, 5, 3))).astype(np.uint8)
    drawing = viz.saliency(colour, {"A": shown_by(MAPS)})
    shown = drawing.axes[1].images[0].get_array()
    np.testing.assert_array_equal(shown, colour[1])
    for images in (4 * GREY - 2, 2 * GREY):
        drawing = viz.saliency(images, {"A": shown_by(MAPS)})
        shown = drawing.axes[1].images[0].get_array()
        assert (shown.min(), shown.max()) == (0, 255)
        assert np.argmax(shown) == np.argmax(GREY[1])
    with np.errstate(invalid="raise", divide="raise"):
        drawing = viz.saliency(0.0 * GREY - 0.4, {"A": shown_by(MAPS)})
    assert not drawing.axes[1].images[0].get_array().any()


@pytest.mark.parametrize(
    ("shown", "more", "message"),
    [
        ({}, {}, "at least one model"),
        ({"B": {"lengths": []}}, {}, "no saliency map of 'B'. The child"),
        ({"B": MAPS}, {}, "rem.explanation` makes .* Received: ndarray of 'B'"),
        ({"A": shown_by(MAPS[:2])}, {}, "3 images and 2 maps"),
        ({"A": shown_by(MAPS)}, {"labels": [0, 1]}, "one label for each image"),
        # The last class has no index -1.
        ({"A": shown_by(MAPS)}, {"labels": [-1, 0, 1]}, "Received: -1 to 1"),
    ],
)  # fmt: skip
def test_what_is_not_there_for_each_image_is_an_error(shown, more, message):
    with pytest.raises(ValueError, match=message):
        viz.saliency(GREY, shown, **more)

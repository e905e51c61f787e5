"""The report of a run: which figures it has, and from what."""

import dataclasses
import html
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from tests.drawings import recorded
from tests.networks import SMALL_NETWORKS, tiny_capsnet
from tests.small_data import noise
from tests.tolerance import SUMS
from tfcaps import rem
from tfcaps.rem.evaluation.saliency_checks import SaliencyChecks
from training import figures
from training.configs import Config
from training.folder import RunFolder
from training.images import Split
from training.results import Results, write_report

LEVELS = 2  # so few that rounded couplings have other trees
ALWAYS = {
    "curves", "tradeoff_epoch", "keys_per_class", "coupling_histograms",
    "parse_trees", "parse_trees_types",
}  # fmt: skip
OF_MODELS = {
    "parse_tree_overall", "parse_tree_classes", "parse_tree_images",
    "tree_fields",
}  # fmt: skip


@pytest.fixture(scope="module")
def data():
    data = noise()
    labels = np.array([2, 1, 1, 0, 2, 0, 1, 2, 0, 0, 1, 2])
    return dataclasses.replace(data, test=data.test._replace(labels=labels))


@pytest.fixture(scope="module")
def models():
    keras.utils.set_random_seed(0)
    both = {"baseline": tiny_capsnet(), "rem": tiny_capsnet()}
    for model in both.values():
        weight = model.get_layer("class_caps").transformation
        weight.assign(1000.0 * weight)
    return both


@pytest.fixture(scope="module")
def images(data):
    return data.test.images[:]


@pytest.fixture(scope="module")
def trees(models, images):
    """The trees of both models: as they are, not rounded as in keys."""
    found = {n: rem.trees(model, images) for n, model in models.items()}
    rounded = rem.trees(models["rem"], images, LEVELS)
    assert np.any(rounded.in_tree != found["rem"].in_tree)
    return found


@pytest.fixture(scope="module")
def reports(models, images, data):
    given = (images, data.test.labels)
    return {
        name: dataclasses.replace(
            rem.evaluate(model, given, LEVELS),
            by_levels=rem.levels_curve(model, given, (2, 3)),
        )
        for name, model in models.items()
    }


def run_folder(path, names, epochs=3):
    folder = RunFolder(path, Config(rem="rem" in names, levels=LEVELS))
    folder.create()
    for name in names:
        for epoch in range(epochs):
            folder.append_metrics(
                {
                    "model": name,
                    "epoch": epoch,
                    "entropy_bits": 1.0 + epoch,
                    "test_accuracy_quantized": 0.5,
                    "sparsity": 0.1 * epoch,
                }
            )
    return folder


@pytest.fixture(scope="module")
def written(tmp_path_factory, models, data, reports):
    """A report with everything that can be in one but a decoder.

    Its folder, its page, and what its figures were given.
    """
    folder = run_folder(tmp_path_factory.mktemp("run") / "run", models)
    with recorded() as given:
        page = write_report(folder, data, Results(models, reports, {}))
    return folder, page.read_text("utf-8"), given


@pytest.mark.slow
def test_every_figure_is_in_the_report(written, reports):
    folder, page, _ = written
    names = {path.stem for path in folder.figures.iterdir()}
    assert names == ALWAYS | OF_MODELS | {
        "tradeoff_levels", "tradeoff_sparsity", "saliency",
        "named_tree_1", "named_tree_2",
    }  # fmt: skip
    assert page.count("<figure>") == len(names)
    told = " ".join(page.split())
    for line in str(reports["rem"]).splitlines():
        assert " ".join(html.escape(line).split()) in told


def test_measurements_are_drawn_over_epochs_sparsity_and_levels(written):
    *_, given = written
    [histograms] = given["coupling_histograms"]
    assert list(histograms["dictionaries"]) == ["Baseline", "REM"]
    shown = [
        {row["model"] for row in call["records"]} for call in given["tradeoff"]
    ]
    both = {"Baseline", "REM"}
    assert shown == [both, {"REM"}, both]


def test_an_image_of_each_class_is_shown(written, data, models, images, trees):
    *_, given = written
    [saliency] = given["saliency"]
    assert list(saliency["labels"]) == [0, 1, 2]
    first = [3, 1, 0]
    np.testing.assert_array_equal(saliency["images"], images[first])
    maps = rem.explanation(models["rem"])(images[first])["saliency"]
    found = saliency["explanations"]["REM"]["saliency"]
    np.testing.assert_allclose(found, maps, atol=SUMS)
    *_, of_images = given["parse_tree"]
    for name, k in zip(data.class_names, first, strict=True):
        expected = trees["rem"][k : k + 1].parse_tree()
        assert of_images["trees"][name].edges == expected.edges


def test_right_and_wrong_images_are_shown_with_their_trees(
    written, data, models, images, trees
):
    _, page, given = written
    own, fields = trees["rem"], rem.receptive_fields(models["rem"])
    [shown] = given["tree_fields"]
    same = [np.all(each == images, axis=(1, 2, 3)) for each in shown["images"]]
    rows = np.argmax(same, axis=1)
    right = own.predicted == data.test.labels
    count = min(4, right.sum())
    marks = [True] * count + [False] * min(4, (~right).sum())
    assert right[rows].tolist() == marks
    assert list(shown["labels"]) == list(data.test.labels[rows])
    np.testing.assert_array_equal(shown["trees"].in_tree, own.in_tree[rows])
    np.testing.assert_array_equal(shown["fields"].boxes, fields.boxes)
    for k, title in zip(rows, shown["titles"], strict=True):
        j = own.predicted[k]
        word = "right" if right[k] else "WRONG"
        start = f"{word}: {data.class_names[j]} {own.lengths[k, j]:.2f}, "
        assert title.startswith(start)
    assert 0 < count < len(rows)
    assert "Right and wrong images, and their trees, REM" in page
    assert f"{np.sum(~right)} of the 12 test images looked at are wrong" in page
    assert "there are no parts to show" not in page


def of_images(model, data, **changes):
    data = dataclasses.replace(data, **changes)
    return figures.right_and_wrong({"rem": model}, data)["tree_fields"]


def test_captions_say_what_there_is_to_see(data, models, trees):
    whole = of_images(tiny_capsnet(primary_kernel_size=6), data)
    assert "there are no parts to show" in whole.caption
    split = Split(data.test.images, trees["rem"].predicted)
    right = of_images(models["rem"], data, test=split)
    assert "None of the 12 test images looked at is wrong." in right.caption


def test_every_class_is_shown_before_one_comes_twice():
    classes = np.array([0] * 10 + [1] * 3 + [2] * 3)
    order = np.array([14, 13, 12, 11, 8, 5, 3, 1])
    assert figures.spread(order, classes, 4).tolist() == [14, 12, 8, 13]


def test_trees_of_the_test_set_are_of_both_models(written, data, trees):
    *_, given = written
    overall, by_class, _ = (call["trees"] for call in given["parse_tree"])
    for name, title in (("baseline", "Baseline"), ("rem", "REM")):
        tree = trees[name].parse_tree(range(3))
        assert len(overall[title].edges) == len(tree.edges) > 0
    own = trees["rem"]
    for j in set(own.predicted.tolist()):
        expected = own[own.predicted == j].parse_tree()
        assert by_class.pop(data.class_names[j]).edges == expected.edges
    assert not by_class


def test_trees_without_a_line_are_left_out_and_told(models, data, monkeypatch):
    monkeypatch.setattr(figures.rem.Trees, "parse_tree", empty_tree)
    alike = SimpleNamespace(saliency=SaliencyChecks(0.83, 0.77))
    report = SimpleNamespace(faithfulness=alike)
    shown = figures.of_models(models, data, dict.fromkeys(models, report))
    assert "saliency" not in shown.drawings
    maps, *left_out = shown.left_out
    assert maps.startswith("Saliency maps: left out. They are as good as alike")
    trees = {"parse_tree_overall", "parse_tree_classes", "parse_tree_images"}
    assert not trees & shown.drawings.keys()
    first, *others = left_out
    assert len(others) == 2
    assert first.startswith("Parse tree of the test set: left out. In the mean")


def test_keys_without_a_leaf_are_left_out_and_told(data, tmp_path, reports):
    folder = run_folder(tmp_path / "run", reports)
    last = dataclasses.replace(reports["rem"], tree_threshold=1.0)
    whole = figures.of_dictionaries(folder, data, reports)
    shown = figures.of_dictionaries(folder, data, reports | {"rem": last})
    without = whole.drawings.keys() - shown.drawings.keys()
    assert without == {"parse_trees", "parse_trees_types"}
    told = "Most frequent parse trees, REM: left out. The most frequent tree"
    assert shown.left_out[0].startswith(told)


def empty_tree(trees, roots=(0,)):
    """Stands for `parse_tree` of couplings that are all uniform."""
    return rem.ParseTree((np.ones(8), np.ones(3)), tuple(roots), ())


def test_trees_of_types_are_those_of_the_last_model(written, reports):
    _, page, given = written
    _, types = given["most_frequent_trees"]
    assert types["trees"] is reports["rem"].type_dictionary
    assert "Most frequent trees of types, REM" in page
    assert "a child of each of 2 types at each of 2x2 places" in page


def test_dictionaries_of_types_are_kept_where_there_are_any(
    tmp_path, data, images, reports
):
    flat = tiny_capsnet(primary_kernel_size=6)
    measured = rem.evaluate(flat, (images, data.test.labels), LEVELS)
    both = {"baseline": reports["baseline"], "rem": measured}
    folder = run_folder(tmp_path / "run", both)
    folder.save_reports(both, {name: {} for name in both})
    assert {path.name for path in folder.path.glob("*.npz")} == {
        "baseline_dictionary.npz", "baseline_dictionary_types.npz",
        "dictionary.npz",
    }  # fmt: skip
    shown = figures.of_dictionaries(folder, data, both)
    of_rows = {"tradeoff_sparsity", "tradeoff_levels"}
    assert set(shown) == ALWAYS - {"parse_trees_types"} | of_rows


def test_children_of_one_position_have_no_saliency_map(data):
    model = SMALL_NETWORKS["multilayer_capsnet"]()
    shown = figures.of_models({"baseline": model}, data, {})
    assert set(shown) == OF_MODELS

"""The report of a run: which figures it has, and from what."""

import dataclasses
import html
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from tests.drawings import recorded
from tests.networks import SMALL_NETWORKS, draw_weights, tiny_capsnet
from tests.small_data import noise
from tests.tolerance import SUMS
from tfcaps import rem
from tfcaps.rem.evaluation.saliency_checks import SaliencyChecks
from training import figures
from training.configs import Config
from training.folder import RunFolder
from training.results import Results, write_report
from training.sample import Sample

LEVELS = 2  # so few that rounded couplings have other trees
ALWAYS = {"curves", "keys_per_class", "tree_fields"}
LABELS = np.array([2, 1, 1, 0, 2, 0, 1, 2, 0, 0, 1, 2])


def sample_of(labels=LABELS):
    data = noise()
    test = data.test._replace(labels=np.asarray(labels))
    return Sample(dataclasses.replace(data, test=test))


@pytest.fixture(scope="module")
def sample():
    return sample_of()


@pytest.fixture(scope="module")
def models():
    keras.utils.set_random_seed(0)
    both = {"baseline": tiny_capsnet(), "rem": tiny_capsnet()}
    for model in both.values():
        weight = model.get_layer("class_caps").transformation
        weight.assign(1000.0 * weight)
    return both


@pytest.fixture(scope="module")
def trees(models, sample):
    """The trees of the REM model: as they are, not rounded as in keys."""
    plain, rounded = (
        rem.trees(models["rem"], sample.images[:], few)
        for few in (None, LEVELS)
    )
    assert np.any(rounded.in_tree != plain.in_tree)
    return plain


@pytest.fixture(scope="module")
def reports(models, sample):
    given = (sample.images[:], sample.labels)
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
    folder.save_data("tiny", ("cat", "dog", "bee"))
    row = {"entropy_bits": 1.0, "test_accuracy_quantized": 0.5}
    for name in names:
        for epoch in range(epochs):
            folder.append_metrics({"model": name, "epoch": epoch, **row})
    return folder


@pytest.fixture(scope="module")
def written(tmp_path_factory, models, sample, reports):
    """A report with everything that can be in one but a decoder.

    Its folder, its page, and what its figures were given.
    """
    folder = run_folder(tmp_path_factory.mktemp("run") / "run", models)
    with recorded() as given:
        results = Results(reports, {}, sample)
        page = write_report(folder, models, results, "tiny")
    return folder, page.read_text("utf-8"), given


@pytest.mark.slow
def test_every_figure_is_in_the_report(written, reports):
    folder, page, given = written
    names = {path.stem for path in folder.figures.iterdir()}
    assert names == ALWAYS | {
        "tradeoff_levels", "saliency", "named_tree_1", "named_tree_2",
    }  # fmt: skip
    assert page.count("<figure>") == len(names)
    told = " ".join(page.split())
    for line in str(reports["rem"]).splitlines():
        assert " ".join(html.escape(line).split()) in told
    [levels] = given["tradeoff"]
    assert {row["model"] for row in levels["records"]} == {"Baseline", "REM"}
    settings = page[page.index("final_sparsity") :]
    assert "coupling_share" in settings and "decay_power" not in settings


def test_an_image_of_each_class_is_shown(written, models, sample):
    *_, given = written
    [saliency] = given["saliency"]
    assert list(saliency["labels"]) == [0, 1, 2]
    first = [list(sample.labels).index(j) for j in range(3)]
    images = sample.images[np.array(first)]
    np.testing.assert_array_equal(saliency["images"], images)
    maps = rem.explanation(models["rem"])(images)["saliency"]
    shown = saliency["explanations"]["REM"]["saliency"]
    np.testing.assert_allclose(shown, maps, atol=SUMS)


def test_right_and_wrong_images_are_shown_with_their_trees(
    written, models, sample, trees
):
    _, page, given = written
    fields, images = rem.receptive_fields(models["rem"]), sample.images[:]
    [shown] = given["tree_fields"]
    why = shown["explained"]
    same = [np.all(each == images, axis=(1, 2, 3)) for each in why.images]
    rows = np.argmax(same, axis=1)
    right = trees.predicted == sample.labels
    count = min(4, right.sum())
    marks = [True] * count + [False] * min(4, (~right).sum())
    assert right[rows].tolist() == marks
    assert why.labels == sample.labels[rows].tolist()
    np.testing.assert_array_equal(why.trees.in_tree, trees.in_tree[rows])
    np.testing.assert_array_equal(why.fields.boxes, fields.boxes)
    for k, title in zip(rows, shown["titles"], strict=True):
        j = trees.predicted[k]
        word = "right" if right[k] else "WRONG"
        start = f"{word}: {sample.class_names[j]} {trees.lengths[k, j]:.2f}, "
        assert title.startswith(start)
    assert 0 < count < len(rows)
    assert "Right and wrong images, and their trees, REM" in page
    assert f"{np.sum(~right)} of the 12 test images looked at are wrong" in page
    assert "there are no parts to show" not in page


def test_every_class_is_shown_before_one_comes_twice():
    classes = np.array([0] * 10 + [1] * 3 + [2] * 3)
    order = np.array([14, 13, 12, 11, 8, 5, 3, 1])
    assert figures.spread(order, classes, 4).tolist() == [14, 12, 8, 13]


def test_what_would_be_empty_is_left_out(models, sample):
    alike = SimpleNamespace(saliency=SaliencyChecks(0.83, 0.77))
    report = SimpleNamespace(faithfulness=alike)
    every = dict.fromkeys(models, report)
    assert figures.saliency(models, every, sample) is None
    flat = {"rem": SMALL_NETWORKS["multilayer_capsnet"]()}
    assert figures.saliency(flat, {}, sample) is None


def test_dictionaries_of_types_are_kept_where_there_are_any(
    tmp_path, sample, reports
):
    flat = tiny_capsnet(primary_kernel_size=6)
    given = (sample.images[:], sample.labels)
    both = reports | {"rem": rem.evaluate(flat, given, LEVELS)}
    folder = run_folder(tmp_path / "run", both)
    folder.save_reports(both, {name: {} for name in both})
    assert {path.name for path in folder.path.glob("*.npz")} == {
        "baseline_dictionary.npz", "baseline_dictionary_types.npz",
        "dictionary.npz",
    }  # fmt: skip
    again, tests = folder.read_report("rem")
    assert again.to_dict() == both["rem"].to_dict() and tests == {}


def test_two_right_images_of_two_classes_are_shown(tmp_path):
    model = draw_weights(tiny_capsnet(), 0, class_caps=9.0)
    folder, sample = run_folder(tmp_path / "run", {"rem": model}), sample_of()
    (folder.path / "names.json").write_text('{"0": "ear"}')
    with recorded() as given:
        shown = figures.named_trees(model, folder, sample)
    drawn = given["named_tree"]
    assert [one.name for one in shown] == ["named_tree_1", "named_tree_2"]
    assert shown[1].caption == "As above."
    images = sample.images[:]
    trees = rem.trees(model, images)
    right = np.unique(trees.predicted[trees.predicted == sample.labels])
    explained = drawn[0]["explained"]
    assert [one["number"] for one in drawn] == [0, 1]
    assert len({*explained.trees.predicted.tolist()}) == 2
    assert explained.type_names == ["ear", "type 1"]
    for number, image in enumerate(explained.images):
        k = np.argmax(np.all(images == image, axis=(1, 2, 3)))
        assert explained.labels[number] == sample.labels[k]
        if number < len(right):
            assert explained.labels[number] == trees.predicted[k]
        own = explained.trees.in_tree[number]
        np.testing.assert_array_equal(own, trees.in_tree[k])
    expected = rem.part_pictures(images, trees)
    np.testing.assert_allclose(folder.parts(), expected, atol=SUMS)
    flat = SMALL_NETWORKS["multilayer_capsnet"]()
    assert figures.named_trees(flat, folder, sample) == []

"""The report of a run: which figures it has, and from what."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, tiny_capsnet
from tests.tolerance import SUMS
from tfcaps import rem
from training import figures, report, tree_figures
from training.configs import Config
from training.datasets import Data
from training.folder import RunFolder
from training.image_data import Images, Split

ALWAYS = {
    "curves", "tradeoff_epoch", "keys_per_class", "coupling_histograms",
    "parse_trees", "parse_trees_types",
}  # fmt: skip
OF_MODELS = {
    "parse_tree_overall", "parse_tree_classes", "parse_tree_images",
    "dictionary_images",
}  # fmt: skip


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (12, 8, 8, 1), np.uint8)
    labels = np.array([2, 1, 1, 0, 2, 0, 1, 2, 0, 0, 1, 2])
    part = Split(Images(images), labels)
    names = ("cat", "dog", "bee")
    return Data("tiny", part, part, part, names)


@pytest.fixture(scope="module")
def models():
    keras.utils.set_random_seed(0)
    both = {"baseline": tiny_capsnet(), "rem": tiny_capsnet()}
    for model in both.values():
        weight = model.get_layer("class_caps").transformation
        weight.assign(1000.0 * weight)
    return both


def measured(models, data):
    images = data.test.images.pixels.astype(np.float32) / 255
    return {
        name: rem.evaluate(model, (images, data.test.labels))
        for name, model in models.items()
    }


def run_folder(path, names, epochs=3):
    folder = RunFolder(path, Config(rem="rem" in names))
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


def files_of(folder):
    found = {p.name for p in folder.figures.iterdir()}
    names = {name.removesuffix(".png") for name in found if ".png" in name}
    assert found == {f"{n}.{kind}" for n in names for kind in ("png", "json")}
    return names


@pytest.fixture(scope="module")
def written(tmp_path_factory, models, data):
    """A report with everything that can be in one but a decoder."""
    folder = run_folder(tmp_path_factory.mktemp("run") / "run", models)
    reports = measured(models, data)
    (folder.path / "epochs").mkdir()
    for epoch in (1, 2, 10, 30, 80):
        path = folder.path / "epochs" / f"rem-{epoch}.npz"
        reports["rem"].dictionary.save(path)
    reports["baseline"].dictionary.save(
        folder.path / "epochs" / "baseline-1.npz"
    )
    rows = [
        {"levels": k, "entropy_bits": 0.1 * k, "accuracy_quantized": 0.9}
        for k in (2, 3, 6, 11)
    ]
    folder.write_json(
        "levels.json", {"model": "rem", "rows": rows, "levels": 6}
    )
    page = report.write(folder, data, reports, models=models)
    return folder, page.read_text("utf-8")


def read(folder, name):
    return json.loads((folder.figures / f"{name}.json").read_text("utf-8"))


@pytest.mark.slow
def test_every_figure_is_in_the_report_with_its_data(written):
    folder, page = written
    assert files_of(folder) == ALWAYS | OF_MODELS | {
        "tradeoff_sparsity", "tradeoff_levels", "epochs_rem", "saliency",
        "tree_fields", "named_tree_1", "named_tree_2",
    }  # fmt: skip
    assert page.count("data:image/png;base64,") == len(files_of(folder))
    assert "Couplings while training, REM" in page


def test_of_the_epochs_kept_four_are_drawn(written):
    folder, _ = written
    assert list(read(folder, "epochs_rem")["children"]) == [
        "epoch 1", "epoch 2", "epoch 30", "epoch 80",
    ]  # fmt: skip


def test_only_the_pruned_model_is_drawn_against_sparsity(written):
    folder, _ = written
    assert list(read(folder, "tradeoff_sparsity")["models"]) == ["REM"]
    assert list(read(folder, "tradeoff_epoch")["models"]) == ["Baseline", "REM"]
    levels = read(folder, "tradeoff_levels")
    assert levels["chosen"] == 6
    assert levels["models"]["REM"]["levels"] == [2, 3, 6, 11]


def test_an_image_of_each_class_is_shown(written, data, models):
    folder, page = written
    saliency = read(folder, "saliency")
    assert saliency["labels"] == [0, 1, 2]
    for shown, index in zip(saliency["images"], (3, 1, 0), strict=True):
        assert shown == data.test.images.pixels[index, ..., 0].tolist()
    images = data.test.images.pixels[[3, 1, 0]].astype(np.float32) / 255
    rounded = rem.quantize_couplings(models["rem"], 11)
    maps = rem.explanation(rounded)(images)["saliency"]
    np.testing.assert_allclose(
        saliency["models"]["REM"]["maps"], maps, atol=SUMS
    )
    trees = rem.trees(models["rem"], images, 11)
    wanted = {
        name: json.loads(json.dumps(trees[k : k + 1].parse_tree().to_dict()))
        for k, name in enumerate(data.class_names)
    }
    assert read(folder, "parse_tree_images") == wanted


def test_right_and_wrong_images_are_shown_with_their_trees(
    written, data, models
):
    folder, page = written
    images = data.test.images.pixels.astype(np.float32) / 255
    trees = rem.trees(models["rem"], images, 11)
    fields = rem.receptive_fields(models["rem"])
    by_picture = {
        json.dumps(image[..., 0].tolist()): k
        for k, image in enumerate(data.test.images.pixels)
    }
    shown = read(folder, "tree_fields")["images"]
    right = trees.predicted == data.test.labels
    assert [part["right"] for part in shown] == [True] * min(4, right.sum()) + [
        False
    ] * min(4, (~right).sum())
    for part in shown:
        k = by_picture[json.dumps(part["image"])]
        j = trees.predicted[k]
        assert part["label"] == data.test.labels[k]
        assert part["right"] == right[k]
        assert int(np.argmax(part["lengths"])) == j
        word = "right" if part["right"] else "WRONG"
        name = data.class_names[j]
        start = f"{word}: {name} {trees.lengths[k, j]:.2f}, "
        assert part["title"].startswith(start)
        children = [child["child"] for child in part["children"]]
        assert sorted(children) == np.flatnonzero(trees.in_tree[k]).tolist()
        boxes = [child["box"] for child in part["children"]]
        assert boxes == fields.boxes[children].tolist()
    wrong = [part["length"] for part in shown if not part["right"]]
    assert wrong and len(wrong) < len(shown)
    assert "Right and wrong images, and their trees, REM" in page
    told = f"{np.sum(~right)} of the 12 test images looked at are wrong"
    assert told in page
    assert "there are no parts to show" not in page


def test_of_networks_without_parts_the_report_says_so(data):
    flat = {"rem": tiny_capsnet(primary_kernel_size=6)}
    whole = tree_figures.right_and_wrong(flat, Config(), data)["tree_fields"]
    assert "there are no parts to show" in whole.caption


def test_every_class_is_shown_before_one_comes_twice():
    classes = np.array([0] * 10 + [1] * 3 + [2] * 3)
    lengths = np.linspace(0.1, 0.9, 16)
    right = np.ones(16, bool)
    right[[1, 3, 5, 8, 11, 14]] = False
    chosen = tree_figures.choose(right, classes, lengths)
    assert right[chosen].tolist() == [True] * 4 + [False] * 4
    assert sorted(classes[chosen[:3]]) == [0, 1, 2]
    # Of the wrong ones those that are the longest, class by class.
    assert chosen[4:].tolist() == [14, 11, 8, 5]
    assert tree_figures.choose(~right, classes, lengths)[:4].tolist() != [
        14, 11, 8, 5,
    ]  # fmt: skip
    np.testing.assert_array_equal(
        tree_figures.choose(right, classes, lengths), chosen
    )


def test_that_none_is_wrong_is_said(data, models):
    images = data.test.images.pixels.astype(np.float32) / 255
    named = rem.trees(models["rem"], images, 11).predicted
    part = Split(data.test.images, named)
    caption = tree_figures.right_and_wrong(
        models, Config(), dataclasses.replace(data, test=part)
    )["tree_fields"].caption
    assert "None of the 12 test images looked at is wrong." in caption


def test_of_images_of_two_classes_either_is_right(data, models):
    both = np.ones((12, 3), np.int64)
    both[:, 0] = 0
    shown = tree_figures.right_and_wrong(
        models,
        Config(),
        dataclasses.replace(data, test=Split(data.test.images, both)),
    )["tree_fields"].drawing.data["images"]
    assert {part["label"] for part in shown} == {1}
    assert all(part["right"] == (part["predicted"] in (1, 2)) for part in shown)


def test_trees_of_the_test_set_are_of_both_models(written, data, models):
    folder, _ = written
    images = data.test.images.pixels.astype(np.float32) / 255
    shown = read(folder, "parse_tree_overall")
    for name, title in (("baseline", "Baseline"), ("rem", "REM")):
        trees = rem.trees(models[name], images, 11)
        tree = trees.parse_tree(range(3))
        assert len(shown[title]["edges"]) == len(tree.edges) > 0
    wanted = {
        data.class_names[j]: json.loads(
            json.dumps(trees[trees.predicted == j].parse_tree().to_dict())
        )
        for j in set(trees.predicted.tolist())
    }
    assert read(folder, "parse_tree_classes") == wanted
    classes = read(folder, "dictionary_images")["classes"]
    assert sum(p["count"] for c in classes for p in c["shown"]) == 12


def test_trees_of_types_are_those_of_the_last_model(written, data, models):
    folder, page = written
    report = measured(models, data)["rem"]
    assert report.grid == (2, 2, 2)
    (first, *_) = read(folder, "parse_trees_types")["classes"]
    trees = report.type_dictionary
    assert len(first["couplings"]) == trees.key_length == 2
    np.testing.assert_allclose(first["couplings"], trees.keys(0)[0] / 10)
    assert [first["samples"], first["with_tree"]] == [
        sum(trees.counts(0)), trees.counts(0)[0],
    ]  # fmt: skip
    assert "Most frequent trees of types, REM" in page
    assert "a child of each of 2 types at each of 2x2 places" in page


def test_of_two_digits_the_lower_one_is_the_class(data, models):
    images, labels = data.test
    pairs = np.eye(3)[labels] + np.eye(3)[(labels + 1) % 3]
    both = dataclasses.replace(data, test=Split(images, pairs))
    shown = figures.of_models(models, Config(), both)
    labels = shown["saliency"].drawing.data["labels"]
    assert labels == [0, 1]


def test_without_models_only_measurements_are_drawn(tmp_path, models, data):
    alone = {"baseline": models["baseline"]}
    folder = run_folder(tmp_path / "run", alone)
    report.write(folder, data, measured(alone, data))
    assert files_of(folder) == ALWAYS


def test_dictionaries_of_types_are_kept_where_there_are_any(
    tmp_path, models, data
):
    flat = tiny_capsnet(primary_kernel_size=6)
    reports = measured({"baseline": models["baseline"], "rem": flat}, data)
    folder = run_folder(tmp_path / "run", models)
    folder.save_reports(reports, {name: {} for name in reports})
    files = {path.name for path in folder.path.glob("*.npz")}
    assert files == {
        "baseline_dictionary.npz", "baseline_dictionary_types.npz",
        "dictionary.npz",
    }  # fmt: skip
    path = folder.path / "baseline_dictionary_types.npz"
    types = rem.CouplingDictionary.load(path)
    expected = reports["baseline"].type_dictionary
    assert types.summary() == expected.summary()
    shown = figures.of_dictionaries(folder, data, reports)
    assert set(shown) == ALWAYS - {"parse_trees_types"} | {"tradeoff_sparsity"}
    saved = json.loads((folder.path / "rem.json").read_text())["models"]
    assert saved["rem"]["type_entropy_bits"] is None
    assert saved["baseline"]["type_entropy_bits"] > 0


def test_children_of_one_position_have_no_saliency_map(data):
    model = SMALL_NETWORKS["multilayer_capsnet"]()
    config = Config(levels=(5, 11), mode="midrise")
    shown = figures.of_models({"baseline": model}, config, data)
    assert set(shown) == OF_MODELS

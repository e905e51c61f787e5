"""Parts in a run: named, drawn, and whether its trees lie on true ones."""

import argparse
import dataclasses
import json

import numpy as np
import pytest

from cli import UserError
from tests.drawings import recorded
from tests.networks import SMALL_NETWORKS, draw_weights, tiny_capsnet
from tests.small_data import noise
from tests.tolerance import SUMS
from tests.training.test_summary import PIXELS, USED
from tfcaps import models, rem
from tfcaps.rem.evaluation.named_parts import part_stability
from training import explain_job, figures, results
from training.configs import Config
from training.datasets.data import Masks
from training.folder import RunFolder


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "run", Config(rem=True))
    folder.create()
    return folder


def write(folder, given):
    text = given if isinstance(given, str) else json.dumps(given)
    (folder.path / "names.json").write_text(text)


def test_two_right_images_of_two_classes_are_shown(folder):
    model, data = draw_weights(tiny_capsnet(), 0, class_caps=9.0), noise(40)
    write(folder, {"0": "ear"})
    measured = {"named_parts": {"names": [None, "paw"]}}
    folder.write_json("rem.json", {"models": {"rem": measured}})
    with recorded() as given:
        shown = figures.named_trees({"rem": model}, folder, data)
    drawn = given["named_tree"]
    assert list(shown) == ["named_tree_1", "named_tree_2"]
    assert shown["named_tree_2"].caption == "As above."
    predicted = [int(one["tree"].predicted[0]) for one in drawn]
    assert predicted == [one["label"] for one in drawn]
    assert len(set(predicted)) == 2
    assert all(one["type_names"] == ["ear", "paw"] for one in drawn)
    images = data.test.images[:]
    trees = rem.trees(model, images)
    for one in drawn:
        k = np.argmax(np.all(images == one["image"], axis=(1, 2, 3)))
        assert np.array_equal(one["tree"].in_tree[0], trees.in_tree[k])
        lengths = rem.tree_lengths(model, images[[k]], trees[k : k + 1])[0]
        np.testing.assert_allclose(one["lengths"], lengths, atol=1e-5)
    expected = rem.part_pictures(images, trees)
    np.testing.assert_allclose(folder.parts(), expected, atol=SUMS)


def test_a_blueprint_is_that_of_the_predicted_class(folder):
    network = models.constellation_capsnet((16, 16, 1), 3, num_types=2)
    images = np.zeros((1, 16, 16, 1), "float32")
    with recorded() as given:
        trees = rem.trees(network, images)
        names = [*"abc"]
        figures.draw_named_trees(folder, network, images, trees, names, [None])
    [drawn] = given["named_tree"]
    blueprint = rem.blueprints(network)[drawn["tree"].predicted[0]]
    np.testing.assert_allclose(drawn["blueprint"], blueprint)


def test_nothing_is_drawn_of_children_without_places(folder):
    flat = {"rem": SMALL_NETWORKS["multilayer_capsnet"]()}
    assert figures.named_trees(flat, folder, noise(3)) == {}
    assert folder.parts() is None


def test_names_are_by_hand_else_kinds_else_numbers(folder):
    def names(*arguments):
        return figures.names_of_types(folder, *arguments)

    assert names(2) == ["type 0", "type 1"]
    # Older runs know no kinds.
    for known in (None, {}, {"names": None}):
        folder.write_json(
            "rem.json", {"models": {"rem": {"named_parts": known}}}
        )
        assert names(1) == ["type 0"]
    measured = {"named_parts": {"names": ["bar", None, "disc"]}}
    folder.write_json("rem.json", {"models": {"rem": measured}})
    assert names(3) == ["bar", "type 1", "disc"]
    write(folder, {"1": " wheel ", "2": "door"})
    assert names(3) == ["bar", "wheel", "door"]
    with pytest.raises(UserError, match="names type 2, .* types are 0 to 1"):
        names(2)
    # A broken file is not one of an older run.
    (folder.path / "rem.json").write_text("{")
    with pytest.raises(UserError, match="rem.json cannot be read"):
        names(3)


@pytest.mark.parametrize(
    "given",
    ["{", "[]", '"wheel"', {"wheel": 0}, {"0": 1}, {"0": " "}, {"-1": "x"}],
    ids=str,
)
def test_a_mistake_is_one_sentence_before_the_work(folder, given):
    write(folder, given)
    message = "names.json must give names of types by their numbers, such as"
    with pytest.raises(UserError, match=message):
        explain_job.explain(argparse.Namespace(run=folder.path))


@pytest.fixture(scope="module")
def model():
    return draw_weights(tiny_capsnet(), 0, class_caps=3.0)


@pytest.fixture
def data():
    """Images with masks of two parts, and of a loose one, of a pixel each."""
    pixels = np.random.default_rng(1).integers(0, 64, (12, 3))
    drawn = np.eye(64, dtype=bool)[pixels].reshape(12, 3, 8, 8)
    return noise(masks=Masks(drawn[:, :2], drawn[:, 2:]))


def floats(data):
    return data.test.images.pixels.astype(np.float32) / 255


def test_parts_are_named_as_the_trees_say(model, data):
    trees = rem.trees(model, floats(data))
    draw = np.random.default_rng(1)
    known = dataclasses.replace(
        data.masks,
        kinds=draw.integers(2, size=(12, 2)),
        loose_kinds=draw.integers(2, size=(12, 1)),
        centres=draw.uniform(0, 8, (12, 2, 2)),
        loose_centres=draw.uniform(0, 8, (12, 1, 2)),
        kind_names=("bar", "disc"),
    )
    expected = rem.named_parts(
        trees,
        known.centres,
        known.loose_centres,
        known.kinds,
        known.loose_kinds,
        kind_names=("bar", "disc"),
    )
    found = results.measure_parts(model, dataclasses.replace(data, masks=known))
    stability = part_stability(model, floats(data), known.centres)
    assert found == dataclasses.replace(expected, stability=stability)
    assert found.own > 0
    bare = results.measure_parts(model, data)  # only masks tell where parts are
    assert bare.own is not None and bare.information is None
    own, loose = data.masks.parts, data.masks.loose
    own[3] = False  # an image without parts does not count
    there = np.arange(12) != 3
    expected = rem.named_parts(trees[there], own[there], loose[there])
    found = results.measure_parts(model, data)
    assert dataclasses.replace(found, stability=None) == expected


def test_only_types_are_measured_without_parts_and_nothing_without_places(
    model, data
):
    alone = rem.named_parts(rem.trees(model, floats(data)))
    unknown = dataclasses.replace(data, masks=None)
    hidden = dataclasses.replace(
        data.masks, parts=np.zeros_like(data.masks.parts)
    )
    unseen = dataclasses.replace(data, masks=hidden)
    assert results.measure_parts(model, unknown) == alone
    assert results.measure_parts(model, unseen) == alone
    flat = SMALL_NETWORKS["multilayer_capsnet"]()
    assert results.measure_parts(flat, data) is None


def test_a_run_measures_parts_and_shows_them(
    model, data, tmp_path, capsys, monkeypatch
):
    # As it is slow.
    monkeypatch.setattr(results, "faithfulness", lambda *args: USED)
    monkeypatch.setattr(results, "in_pixels", lambda *args: PIXELS)
    config = Config(rem=True, baseline=False)
    reports, tests = results.measure(config, data, {"rem": model})
    named = results.measure_parts(model, data)
    assert reports["rem"].named_parts == named
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 100
    told = " ".join(told.split())
    assert " ".join(str(named).split()) in told
    folder = RunFolder(tmp_path, config)
    folder.save_reports(reports, tests)
    again, _ = folder.read_report("rem")
    assert again.faithfulness == dataclasses.replace(USED, pixels=PIXELS)
    saved = json.loads((tmp_path / "rem.json").read_text("utf-8"))
    saved = saved["models"]["rem"]
    assert saved["pixels"] == PIXELS.to_dict()
    assert saved["named_parts"] == named.to_dict()
    assert saved["verdict"].endswith(named.verdict)

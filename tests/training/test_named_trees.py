"""Pictures of named trees in the report of a run, and names of types."""

import argparse
import json

import numpy as np
import pytest

from cli import UserError
from tests.drawings import recorded
from tests.networks import SMALL_NETWORKS, draw_weights, tiny_capsnet
from tests.tolerance import SUMS
from tfcaps import models, rem
from training import explain_job, figures
from training.configs import Config
from training.datasets import Data
from training.folder import RunFolder
from training.images import Images, Split


def data_of(count, side=8):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, side, side, 1), np.uint8)
    part = Split(Images(images), np.arange(count) % 3)
    return Data("tiny", part, part, part, ("cat", "dog", "bee"))


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "run", Config(rem=True))
    folder.create()
    return folder


def write(folder, given):
    text = given if isinstance(given, str) else json.dumps(given)
    (folder.path / "names.json").write_text(text)


def test_two_right_images_of_two_classes_are_shown(folder):
    model, data = draw_weights(tiny_capsnet(), 0, class_caps=9.0), data_of(40)
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
    network = models.constellation_capsnet((16, 16, 1), 3, part_types=2)
    images = np.zeros((1, 16, 16, 1), "float32")
    with recorded() as given:
        figures.draw_named_trees(folder, network, images, [*"abc"], [None])
    [drawn] = given["named_tree"]
    blueprint = rem.blueprints(network)[drawn["tree"].predicted[0]]
    np.testing.assert_allclose(drawn["blueprint"], blueprint)


def test_nothing_is_drawn_of_children_without_places(folder):
    flat = {"rem": SMALL_NETWORKS["multilayer_capsnet"]()}
    assert figures.named_trees(flat, folder, data_of(3)) == {}
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

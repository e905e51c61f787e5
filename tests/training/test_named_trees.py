"""Pictures of named trees in the report of a run."""

import json

import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, draw_weights, tiny_capsnet
from tests.tolerance import SUMS
from tfcaps import models, rem
from training import tree_figures
from training.configs import Config
from training.datasets import Data
from training.folder import RunFolder
from training.image_data import Images, Split


def data_of(count, side=8):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, side, side, 1), np.uint8)
    part = Split(Images(images), np.arange(count) % 3)
    return Data("tiny", part, part, part, ("cat", "dog", "bee"))


@pytest.fixture
def model():
    return draw_weights(tiny_capsnet(), 0, class_caps=9.0)


def test_two_right_images_of_two_classes_are_shown(tmp_path, model):
    folder, data = RunFolder(tmp_path, Config()), data_of(40)
    (tmp_path / "names.json").write_text(json.dumps({"0": "ear"}))
    shown = tree_figures.named({"rem": model}, folder, data, [None, "paw"])
    drawn = [one.drawing.data for one in shown.values()]
    assert list(shown) == ["named_tree_1", "named_tree_2"]
    assert len({one["predicted"] for one in drawn}) == 2
    assert all(one["predicted"] == one["label"] for one in drawn)
    assert all(one["type_names"] == ["ear", "paw"] for one in drawn)
    pictures = data.test.images.pixels[..., 0].tolist()
    images = data.test.images[:]
    trees = rem.trees(model, images)
    for one in drawn:
        k = pictures.index(one["image"])
        leaves = np.flatnonzero(trees.in_tree[k]).tolist()
        assert sorted(x["child"] for x in one["leaves"]) == leaves
        lengths = rem.tree_lengths(model, images[[k]], trees[k : k + 1])[0]
        found = [*one["lengths"].values()]
        np.testing.assert_allclose(found, lengths, atol=1e-5)
    expected = rem.part_pictures(images, trees)
    np.testing.assert_allclose(folder.parts(), expected, atol=SUMS)


def test_a_blueprint_is_that_of_the_predicted_class(tmp_path):
    network = models.constellation_capsnet((16, 16, 1), 3, part_types=2)
    [drawing] = tree_figures.draw_named(
        RunFolder(tmp_path, Config()),
        network,
        np.zeros((1, 16, 16, 1), "float32"),
        classes=["a", "b", "c"],
        parts=None,
    )
    blueprint = rem.blueprints(network)[drawing.data["predicted"]]
    np.testing.assert_allclose(drawing.data["blueprint"], blueprint)


def test_nothing_is_drawn_of_children_without_places(tmp_path):
    flat = SMALL_NETWORKS["multilayer_capsnet"]()
    folder = RunFolder(tmp_path, Config())
    assert tree_figures.named({"rem": flat}, folder, data_of(3)) == {}
    assert not list(tmp_path.iterdir()) and folder.parts() is None

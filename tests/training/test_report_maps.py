"""Maps of several methods in the report of a run."""

import json

import keras
import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, tiny_capsnet
from tests.tolerance import SUMS
from tfcaps import rem
from training import maps
from training.configs import Config
from training.datasets import Data
from training.datasets.masks import Masks
from training.folder import RunFolder
from training.image_data import Images, Split

METHODS = [
    "couplings", "integrated gradients", "Grad-CAM", "occlusion", "random",
]  # fmt: skip


def data_of(masks=None, count=8):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, 8, 8, 1), np.uint8)
    part = Split(Images(images), np.arange(count)[::-1] % 3)
    return Data("tiny", part, part, part, ("cat", "dog", "bee"), masks=masks)


def masks_of(count=8):
    rng = np.random.default_rng(1)
    parts = rng.random((count, 2, 8, 8)) > 0.7
    return Masks(object=parts.any(axis=1), parts=parts, loose=parts[:, :0])


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = RunFolder(tmp_path_factory.mktemp("run"), Config())
    data = data_of(masks_of())
    keras.utils.set_random_seed(0)
    models = {"baseline": tiny_capsnet(), "rem": tiny_capsnet()}
    return folder, data, models, maps.of_models(folder, models, data)["maps"]


def test_measures_of_all_models_are_written_and_in_the_table(written):
    folder, data, models, shown = written
    stored = json.loads((folder.path / "maps.json").read_text("utf-8"))
    images = data.test.images.pixels.astype(np.float32) / 255
    assert list(stored["models"]) == ["baseline", "rem"]
    expected = rem.compare_maps(
        models["rem"], images, data.masks.object, num_subsets=100
    ).to_dict()
    found = stored["models"]["rem"]
    assert found["settings"] == expected["settings"]
    for method, measures in expected["measures"].items():
        assert found["measures"][method] == pytest.approx(measures, abs=1e-4)
    head, rows = shown.table
    assert head[:3] == ("model", "map", "relevance mass")
    assert [row[0] for row in rows] == ["Baseline"] * 5 + ["REM"] * 5
    assert [row[1] for row in rows] == METHODS * 2
    own = stored["models"]["rem"]["measures"]["couplings"]
    assert rows[5][2] == f"{own['relevance_mass']:.3f}"


def test_maps_of_the_last_model_are_drawn_for_an_image_of_each_class(written):
    _, data, models, shown = written
    drawn = shown.drawing.data
    assert list(drawn["maps"]) == METHODS
    first = [1, 0, 2]  # labels run 1, 0, 2, 1 ...
    np.testing.assert_array_equal(
        drawn["images"], data.test.images.pixels[first, ..., 0]
    )
    np.testing.assert_array_equal(drawn["masks"], data.masks.object[first])
    images = data.test.images.pixels.astype(np.float32) / 255
    explained = rem.explanation(models["rem"])(images)
    np.testing.assert_allclose(
        drawn["maps"]["couplings"],
        np.asarray(explained["saliency"])[first],
        atol=SUMS,
    )
    assert drawn["classes"] == np.asarray(explained["classes"])[first].tolist()
    assert "8 test images" in shown.caption
    assert "outline of the object" in shown.caption
    assert "Relevance mass" in shown.caption


@pytest.mark.slow
def test_without_masks_there_are_no_measures_of_places(tmp_path):
    data = data_of(count=3)
    folder = RunFolder(tmp_path, Config())
    shown = maps.of_models(folder, {"rem": tiny_capsnet()}, data)["maps"]
    assert "relevance mass" not in shown.table[0]
    assert "Relevance mass" not in shown.caption
    assert "outline" not in shown.caption
    assert shown.drawing.data["masks"] is None


def test_images_whose_object_has_no_pixel_are_left_out(tmp_path):
    masks = masks_of(4)
    masks.object[2] = False
    folder, models = RunFolder(tmp_path, Config()), {"rem": tiny_capsnet()}
    shown = maps.of_models(folder, models, data_of(masks, 4))["maps"]
    assert "3 test images" in shown.caption
    masks.object[:] = False
    assert maps.of_models(folder, models, data_of(masks, 4)) == {}


def test_networks_without_a_map_of_couplings_are_left_out(tmp_path):
    folder = RunFolder(tmp_path, Config())
    models = {"rem": SMALL_NETWORKS["multilayer_capsnet"]()}
    assert maps.of_models(folder, models, data_of()) == {}
    assert not list(tmp_path.iterdir())


def test_of_two_objects_the_mask_is_that_of_the_predicted_class():
    masks = masks_of(4)
    classes = np.array([[0, 1], [2, 1], [0, 2], [1, 0]])
    both = Masks(masks.object, masks.parts, masks.loose, classes)
    data = data_of(both, 4)
    found = maps._masks_of(np.array([1, 1, 1, 0]), data, np.arange(4))
    np.testing.assert_array_equal(found[0], masks.parts[0, 1])
    np.testing.assert_array_equal(found[1], masks.parts[1, 1])
    np.testing.assert_array_equal(found[2], masks.object[2])  # it has no 1
    np.testing.assert_array_equal(found[3], masks.parts[3, 1])


def test_fewer_images_are_measured_where_they_are_large():
    def chosen(side, count):
        images = Images(np.zeros((count, side, side, 1), np.uint8))
        part = Split(images, np.zeros(count, int))
        return maps._spread(Data("x", part, part, part, ("a",)))

    assert len(chosen(28, 1000)) == len(chosen(8, 1000)) == 50
    assert len(chosen(40, 1000)) == 24 and len(chosen(128, 1000)) == 16
    assert chosen(28, 1000)[[0, -1]].tolist() == [0, 999]
    assert set(chosen(28, 5)) == set(range(5))

"""Whether a run's trees and maps lie on true parts, in its report."""

import dataclasses
import json

import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, draw_weights, tiny_capsnet
from tfcaps import rem
from tfcaps.rem.evaluation.named_parts import part_stability
from training import results
from training.configs import Config
from training.datasets import Data
from training.datasets.masks import Masks
from training.folder import RunFolder
from training.image_data import Images, Split


@pytest.fixture(scope="module")
def model():
    return draw_weights(tiny_capsnet(), 0, class_caps=3.0)


def data_of(count=12):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, 8, 8, 1), np.uint8)
    drawn = np.zeros((count, 3, 8, 8), bool)
    corners = rng.integers(0, 8, (count, 3, 2))
    for image, things in enumerate(corners):
        for thing, (row, column) in enumerate(things):
            drawn[image, thing, row, column] = True
    masks = Masks(drawn[:, :2].any(axis=1), drawn[:, :2], drawn[:, 2:])
    part = Split(Images(images), np.arange(count) % 3)
    return Data("tiny", part, part, part, ("a", "b", "c"), masks=masks)


def floats(data):
    return data.test.images.pixels.astype(np.float32) / 255


def test_trees_lie_on_parts_of_images_that_have_some(model):
    data = data_of()
    trees = rem.trees(model, floats(data))
    own, loose = data.masks.parts, data.masks.loose
    found, _ = results.measure_parts(model, data)
    assert found == rem.trees_on_parts(trees, own, loose)
    assert abs(found.own - found.own_of_active) > 0.005
    own[3] = False
    there = np.arange(12) != 3
    expected = rem.trees_on_parts(trees[there], own[there], loose[there])
    assert results.measure_parts(model, data)[0] == expected


def test_parts_are_named_as_the_trees_say(model):
    data = data_of()
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
    data = dataclasses.replace(data, masks=known)
    _, found = results.measure_parts(model, data)
    stability = part_stability(model, floats(data), known.centres)
    assert found == dataclasses.replace(expected, stability=stability)
    assert found.own > 0
    # Only masks tell where parts are.
    _, bare = results.measure_parts(model, data_of())
    assert bare.own is not None and bare.information is None
    alone = results.measure_parts(model, dataclasses.replace(data, masks=None))
    assert alone == (None, rem.named_parts(trees))


def test_nothing_is_measured_without_masks_places_or_parts(model):
    data = data_of()
    unknown = dataclasses.replace(data, masks=None)
    hidden = dataclasses.replace(
        data.masks, parts=np.zeros_like(data.masks.parts)
    )
    unseen = dataclasses.replace(data, masks=hidden)
    flat = SMALL_NETWORKS["multilayer_capsnet"]()
    for network, part in ((model, unknown), (model, unseen), (flat, data)):
        assert results.measure_parts(network, part)[0] is None
    assert results.measure_parts(flat, data) == (None, None)


def test_a_run_measures_parts_and_shows_them(
    model, tmp_path, capsys, monkeypatch
):
    # As it is slow.
    monkeypatch.setattr(results, "faithfulness", lambda *args: None)
    data = data_of()
    config = Config(rem=True, baseline=False)
    reports, tests = results.measure(config, data, {"rem": model})
    expected, named = results.measure_parts(model, data)
    assert reports["rem"].parts == expected
    assert reports["rem"].named_parts == named
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 100
    told = " ".join(told.split())
    for measures in (expected, named):
        assert " ".join(str(measures).split()) in told
    RunFolder(tmp_path, config).save_reports(reports, tests)
    saved = json.loads((tmp_path / "rem.json").read_text("utf-8"))
    saved = saved["models"]["rem"]
    assert saved["parts"] == expected.to_dict()
    assert saved["named_parts"] == named.to_dict()
    assert saved["verdict"].endswith(named.verdict)

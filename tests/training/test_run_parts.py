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
from training.datasets.data import Masks
from training.folder import RunFolder
from training.images import Images, Split


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
    masks = Masks(drawn[:, :2], drawn[:, 2:])
    part = Split(Images(images), np.arange(count) % 3)
    return Data("tiny", part, part, part, ("a", "b", "c"), masks=masks)


def floats(data):
    return data.test.images.pixels.astype(np.float32) / 255


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
    model,
):
    data = data_of()
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
    model, tmp_path, capsys, monkeypatch
):
    # As it is slow.
    monkeypatch.setattr(results, "faithfulness", lambda *args: None)
    data = data_of()
    config = Config(rem=True, baseline=False)
    reports, tests = results.measure(config, data, {"rem": model})
    named = results.measure_parts(model, data)
    assert reports["rem"].named_parts == named
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 100
    told = " ".join(told.split())
    assert " ".join(str(named).split()) in told
    RunFolder(tmp_path, config).save_reports(reports, tests)
    saved = json.loads((tmp_path / "rem.json").read_text("utf-8"))
    saved = saved["models"]["rem"]
    assert saved["named_parts"] == named.to_dict()
    assert saved["verdict"].endswith(named.verdict)

"""Whether a run's trees and maps lie on true parts, in its report."""

import dataclasses
import json

import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, draw_weights, tiny_capsnet
from tfcaps import rem
from tfcaps.rem.evaluation.named_parts import part_stability
from tfcaps.rem.maps import pointing, relevance_mass
from training import parts, results, summary
from training.configs import Config
from training.datasets import Data
from training.datasets.masks import Masks
from training.folder import RunFolder
from training.image_data import Images, Split


@pytest.fixture(scope="module")
def model():
    return draw_weights(tiny_capsnet(), 0, class_caps=3.0)


def data_of(count=12, *, pairs=False):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, 8, 8, 1), np.uint8)
    first = np.arange(count) % 3
    classes = np.stack([first, (first + 1 + rng.integers(2, size=count)) % 3])
    labels = np.eye(3, dtype=np.float32)[classes].sum(axis=0)
    drawn = np.zeros((count, 3, 8, 8), bool)
    corners = rng.integers(0, 8, (count, 3, 2))
    for image, things in enumerate(corners):
        for thing, (row, column) in enumerate(things):
            drawn[image, thing, row, column] = True
    masks = Masks(
        drawn[:, :2].any(axis=1),
        drawn[:, :2],
        drawn[:, 2:],
        classes.T if pairs else None,
    )
    part = Split(Images(images), labels if pairs else first)
    return Data("tiny", part, part, part, ("a", "b", "c"), masks=masks)


def floats(data):
    return data.test.images.pixels.astype(np.float32) / 255


def of_class(data, predicted):
    """Returns parts of the class, loose ones, and which images have some."""
    own, loose = data.masks.parts, data.masks.loose
    if data.masks.of_classes is not None:
        mine = (data.masks.of_classes == predicted[:, None])[..., None, None]
        loose = np.concatenate([own & ~mine, loose], axis=1)
        own = own & mine
    return own, loose, own.any(axis=(1, 2, 3))


@pytest.mark.parametrize("pairs", [False, True], ids=["one", "two objects"])
def test_trees_and_maps_lie_on_parts_of_the_predicted_class(model, pairs):
    data = data_of(pairs=pairs)
    trees = rem.trees(model, floats(data))
    own, loose, there = of_class(data, trees.predicted)
    found = parts.measure(model, data)
    expected = rem.trees_on_parts(trees[there], own[there], loose[there])
    assert found.trees == expected
    assert (there.sum() < 12) == pairs
    assert abs(found.trees.own - found.trees.own_of_active) > 0.005
    objects = own.any(axis=1) if pairs else data.masks.object
    maps = np.asarray(rem.coupling_maps(model, floats(data)))
    for name, measure, drawn in (
        ("relevance_mass", relevance_mass, maps),
        ("pointing", pointing, maps),
        ("relevance_mass_uniform", relevance_mass, np.ones_like(maps)),
    ):
        expected = np.mean(measure(drawn[there], objects[there]))
        assert found.maps[name] == pytest.approx(expected, abs=1e-5)
    assert len(set(found.maps.values())) == 3


def test_maps_of_each_digit_are_compared_with_both(model):
    data = data_of(pairs=True)
    lost = data.masks.parts.copy()
    lost[5, 1] = False  # a digit that cannot be seen
    masks = dataclasses.replace(data.masks, parts=lost)
    data = dataclasses.replace(data, masks=masks)
    rows = np.arange(12) != 5
    right, other = np.empty((2, 2, 11), bool)
    for digit, classes in enumerate(data.masks.of_classes.T):
        maps = rem.coupling_maps(model, floats(data)[rows], classes[rows])
        right[digit] = pointing(maps, lost[rows, digit])
        other[digit] = pointing(maps, lost[rows, 1 - digit])
    measured = parts.maps_of_pairs(model, data)
    assert measured == {
        "pointing": pytest.approx(right.mean()),
        "pointing_both": pytest.approx(right.all(axis=0).mean()),
        "pointing_other": pytest.approx(other.mean()),
    }
    assert len(set(measured.values())) == 3


@pytest.mark.parametrize("pairs", [False, True], ids=["one", "two objects"])
def test_parts_are_named_as_the_trees_say(model, pairs):
    data = data_of(pairs=pairs)
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
    own, loose = known.centres, known.loose_centres
    kinds, loose_kinds = known.kinds, known.loose_kinds
    there = np.ones(12, bool)
    if pairs:
        of_class = known.of_classes == trees.predicted[:, None]
        there = of_class.any(axis=1)
        others = np.where(of_class[..., None], np.nan, own)
        loose = np.concatenate([others, loose], axis=1)
        own = np.where(of_class[..., None], own, np.nan)
        loose_kinds = np.concatenate([kinds, loose_kinds], axis=1)
    expected = rem.named_parts(
        trees[there],
        own[there],
        loose[there],
        kinds[there],
        loose_kinds[there],
        kind_names=("bar", "disc"),
    )
    found = parts.measure(model, dataclasses.replace(data, masks=known)).named
    images = floats(data)[there]
    stability = part_stability(model, images, own[there])
    assert found == dataclasses.replace(expected, stability=stability)
    assert (len(images) < 12) == pairs and found.own > 0
    bare = parts.measure(model, data).named  # only masks tell where parts are
    assert bare.own is not None and bare.information is None
    alone = parts.measure(model, dataclasses.replace(data, masks=None))
    assert alone == parts.OnParts(named=rem.named_parts(trees))


def test_nothing_is_measured_without_masks_places_or_parts(model):
    data = data_of(pairs=True)
    unknown = dataclasses.replace(data, masks=None)
    hidden = dataclasses.replace(
        data.masks, parts=np.zeros_like(data.masks.parts)
    )
    unseen = dataclasses.replace(data, masks=hidden)
    flat = SMALL_NETWORKS["multilayer_capsnet"]()
    for network, part in ((model, unknown), (model, unseen), (flat, data)):
        found = parts.measure(network, part)
        assert found.trees is None and found.maps == {}
        assert parts.maps_of_pairs(network, part) == {}
    assert parts.measure(flat, data) == parts.OnParts()
    assert parts.maps_of_pairs(model, data_of()) == {}


def test_a_run_measures_parts_and_shows_them(
    model, tmp_path, capsys, monkeypatch
):
    # As it is slow.
    monkeypatch.setattr(parts, "used", lambda *args: None)
    data = data_of(pairs=True)
    config = Config(pairs=True, rem=True, baseline=False)
    reports, tests = results.measure(config, data, {"rem": model})
    expected, named, on_maps = parts.measure(model, data)
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
    measured = parts.maps_of_pairs(model, data)
    assert saved["tests"]["pairs"].items() >= measured.items()
    assert saved["tests"]["maps"] == on_maps
    of_maps, sentence = summary.sentences(tests)
    assert f"{on_maps['relevance_mass']:.1%} of a map is on" in of_maps
    assert f"{measured['pointing']:.2%} of the digits' maps" in sentence

"""Whether a run's trees and maps lie on true parts, in its report."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, draw_weights, tiny_capsnet
from tfcaps import rem
from tfcaps.rem.evaluation.named_parts import part_stability
from training import parts, results, summary
from training.configs import Config
from training.datasets import Data
from training.datasets.masks import Masks
from training.folder import RunFolder
from training.image_data import Images, Split

MARGIN = 2


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


def close(place, mask):
    """Tells whether a place is on a mask or at most two pixels beside it."""
    return any(
        max(abs(place[0] - row), abs(place[1] - column)) <= MARGIN
        for row, column in np.argwhere(mask)
    )


def shares_of(model, data):
    """Returns the shares of trees and of activations, by loops."""
    images = floats(data)
    shown = rem.capsule_outputs(model)(images)
    classes = np.argmax(np.asarray(shown["lengths"]), axis=-1)
    couplings = np.asarray(shown["couplings"])
    primary = keras.Model(model.input, model.get_layer("primary_caps").output)
    poses = np.asarray(primary(images))
    active = np.linalg.norm(poses, axis=-1).reshape(len(images), -1)
    centres = rem.receptive_fields(model).child_centres
    shares = {"tree": [], "all": [], "active": []}
    for image, j in enumerate(classes):
        own = list(data.masks.parts[image])
        loose = list(data.masks.loose[image])
        if data.masks.of_classes is not None:
            of = data.masks.of_classes[image]
            loose += [m for m, k in zip(own, of, strict=True) if k != j]
            own = [m for m, k in zip(own, of, strict=True) if k == j]
            if not own:
                continue
        sums = {name: np.zeros(3) for name in shares}
        for child, centre in enumerate(centres):
            place = np.floor(centre + 0.5)
            kind = 2
            if any(close(place, mask) for mask in loose):
                kind = 1
            if any(close(place, mask) for mask in own):
                kind = 0
            coupling = couplings[image, child, j]
            if coupling > (1 + 1e-5) / 3:
                sums["tree"][kind] += coupling * active[image, child]
            sums["all"][kind] += 1
            sums["active"][kind] += active[image, child]
        for name, weight in sums.items():
            if weight.sum():
                shares[name].append(weight / weight.sum())
    return {name: np.mean(each, axis=0) for name, each in shares.items()}, len(
        shares["all"]
    )


@pytest.mark.parametrize("pairs", [False, True], ids=["one", "two objects"])
def test_trees_lie_on_parts_as_a_loop_says(model, pairs):
    data = data_of(pairs=pairs)
    found = parts.measure(model, data).trees
    shares, count = shares_of(model, data)
    assert found.samples == count and (count < 12) == pairs
    expected = {
        ("own", "loose", "nothing"): shares["tree"],
        ("own_of_all", "loose_of_all"): shares["all"][:2],
        ("own_of_active", "loose_of_active"): shares["active"][:2],
    }
    for names, values in expected.items():
        own = [getattr(found, name) for name in names]
        np.testing.assert_allclose(own, values, atol=1e-5)
    assert abs(found.own - found.own_of_active) > 0.005


def test_maps_of_each_digit_are_compared_with_both(model):
    data = data_of(pairs=True)
    lost = data.masks.parts.copy()
    lost[5, 1] = False  # a digit that cannot be seen
    data = dataclasses.replace(
        data, masks=dataclasses.replace(data.masks, parts=lost)
    )
    right, other = [], []
    maps = [
        rem.coupling_maps(model, floats(data), classes)
        for classes in data.masks.of_classes.T
    ]
    for image in [k for k in range(12) if k != 5]:
        for digit in (0, 1):
            highest = maps[digit][image]
            highest = np.unravel_index(highest.argmax(), highest.shape)
            right.append(close(highest, lost[image, digit]))
            other.append(close(highest, lost[image, 1 - digit]))
    measured = parts.maps_of_pairs(model, data)
    both = np.reshape(right, (-1, 2)).all(axis=1)
    assert measured == {
        "pointing": pytest.approx(np.mean(right)),
        "pointing_both": pytest.approx(np.mean(both)),
        "pointing_other": pytest.approx(np.mean(other)),
    }
    assert len(set(measured.values())) == 3


@pytest.mark.parametrize("pairs", [False, True], ids=["one", "two objects"])
def test_maps_of_the_predicted_class_are_compared_with_its_object(model, pairs):
    data = data_of(pairs=pairs)
    images, masks = floats(data), data.masks
    classes = np.asarray(model(images)).argmax(axis=-1)
    found, mass, even = [], [], []
    for image, each in enumerate(rem.coupling_maps(model, images)):
        mask = masks.object[image]
        if pairs:
            of = masks.of_classes[image] == classes[image]
            mask = masks.parts[image][of].any(axis=0)
        if not mask.any():
            continue
        on = np.array(
            [[close((row, column), mask) for column in range(8)]
             for row in range(8)]
        )  # fmt: skip
        found.append(on[np.unravel_index(each.argmax(), each.shape)])
        mass.append(each[on].sum() / each.sum())
        even.append(on.mean())
    assert (len(found) < 12) == pairs
    measured = parts.measure(model, data).maps
    assert measured == {
        "relevance_mass": pytest.approx(np.mean(mass), abs=1e-5),
        "pointing": pytest.approx(np.mean(found)),
        "relevance_mass_uniform": pytest.approx(np.mean(even)),
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
    assert (found.samples < 12) == pairs and 0 < found.found
    bare = parts.measure(model, data).named  # only masks tell where parts are
    assert bare.found is not None and bare.information is None
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
    nothing = (None, {})  # as it is slow
    monkeypatch.setattr(parts, "used", lambda *args: nothing)
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

"""What a run measures of its models: levels, trees, and true parts."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from tests.networks import (
    SMALL_NETWORKS,
    draw_weights,
    outputs_of,
    sharpened,
    tiny_capsnet,
)
from tests.small_data import noise
from tests.training.test_summary import PIXELS, USED
from tfcaps import rem
from tfcaps.rem.evaluation.named_parts import part_stability
from training import results
from training.configs import Config
from training.folder import RunFolder
from training.sample import Sample


def test_models_get_the_same_lowest_levels():
    keras.utils.set_random_seed(0)
    models = {"baseline": tiny_capsnet(), "rem": tiny_capsnet()}
    sharpened(models["rem"])
    data = noise()
    images = data.test.images[:]
    labels = outputs_of(models["rem"], images).argmax(axis=-1)
    data = dataclasses.replace(
        data, validation=data.test._replace(labels=labels.astype(np.int32))
    )
    each = [rem.lowest_levels(m, (images, labels)) for m in models.values()]
    chosen = results.lowest_levels(Config(levels="lowest"), data, models)
    assert each[0] != each[1] and chosen == max(each)


@pytest.fixture(scope="module")
def model():
    return draw_weights(tiny_capsnet(), 0, class_caps=3.0)


@pytest.fixture
def masks():
    """Two parts, and a loose one, of two kinds, in 12 images."""
    draw = np.random.default_rng(1)
    centres, kinds = (
        draw.uniform(0, 8, (12, 3, 2)),
        draw.integers(2, size=(12, 3)),
    )
    return rem.PartMasks(
        centres[:, :2],
        centres[:, 2:],
        kinds[:, :2],
        kinds[:, 2:],
        ("bar", "disc"),
    )


def sample_of(masks):
    return Sample(noise(masks=masks))


def test_trees_are_made_once_a_model(model, monkeypatch):
    sample = sample_of(None)
    assert sorted(sample.rows) == [*range(12)] != list(sample.rows)
    np.testing.assert_array_equal(
        sample.images[:], noise().test.images[sample.rows]
    )
    found = sample.trees(model)
    expected = rem.trees(model, sample.images[:])
    np.testing.assert_array_equal(found.in_tree, expected.in_tree)
    monkeypatch.setattr(rem, "trees", pytest.fail)
    assert sample.trees(model) is found


def test_parts_are_named_as_the_trees_say(model, masks):
    sample = sample_of(masks)
    trees, parts = sample.trees(model), masks[sample.rows]
    expected = rem.named_parts(trees, parts)
    named = results.measure_parts(model, sample)
    stability = part_stability(model, sample.images[:], trees, parts)
    assert named == dataclasses.replace(expected, stability=stability)
    assert named.own > 0


def test_only_types_are_measured_without_parts_and_nothing_without_places(
    model,
):
    sample = sample_of(None)
    alone = rem.named_parts(sample.trees(model))
    assert results.measure_parts(model, sample) == alone
    flat = SMALL_NETWORKS["multilayer_capsnet"]()
    assert results.measure_parts(flat, sample) is None


def test_a_run_measures_parts_and_shows_them(
    model, masks, tmp_path, capsys, monkeypatch
):
    # As it is slow.
    monkeypatch.setattr(results, "faithfulness", lambda *args: USED)
    monkeypatch.setattr(results, "in_pixels", lambda *args: PIXELS)
    config, data = Config(rem=True, baseline=False), noise(masks=masks)
    measured = results.measure(config, data, {"rem": model})
    named = results.measure_parts(model, Sample(data))
    assert measured.reports["rem"].named_parts == named
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 100
    assert " ".join(str(named).split()) in " ".join(told.split())
    folder = RunFolder(tmp_path, config)
    folder.save_reports(measured.reports, measured.tests)
    again, _ = folder.read_report("rem")
    assert again.faithfulness == dataclasses.replace(USED, pixels=PIXELS)
    saved = json.loads((tmp_path / "rem.json").read_text("utf-8"))
    saved = saved["models"]["rem"]
    assert saved["pixels"] == PIXELS.to_dict()
    assert saved["named_parts"] == json.loads(json.dumps(named.to_dict()))
    assert saved["verdict"].endswith(named.verdict)


def test_a_stopped_run_measures_no_model_again(
    model, masks, tmp_path, monkeypatch
):
    asked = []

    def used(name, *others):
        asked.append(name)
        if asked == ["baseline", "rem"]:
            raise KeyboardInterrupt
        return USED

    monkeypatch.setattr(results, "faithfulness", used)
    monkeypatch.setattr(results, "in_pixels", lambda *args: PIXELS)
    folder = RunFolder(tmp_path, Config(rem=True))
    data, models = noise(masks=masks), {"baseline": model, "rem": model}
    with pytest.raises(KeyboardInterrupt):
        results.measure(folder.config, data, models, folder=folder)
    assert not (tmp_path / "rem.json").exists()
    both = results.measure(folder.config, data, models, folder=folder)
    assert asked == ["baseline", "rem", "rem"]
    measured = (tmp_path / "measured.json").read_bytes()
    folder.save_reports(both.reports, both.tests)
    assert {p.name for p in tmp_path.glob("*.json")} == {"rem.json"}
    # Stopped just before that file was removed.
    (tmp_path / "measured.json").write_bytes(measured)
    folder.save_reports(both.reports, both.tests)
    assert {p.name for p in tmp_path.glob("*.json")} == {"rem.json"}

"""Features of a frozen backbone that are computed once and kept."""

import contextlib
import dataclasses
import functools

import keras
import numpy as np
import pytest

from cli import UserError
from tests.nightly import nightly
from tests.parts import test_body_plan as plans
from tests.small_data import noise
from tests.tolerance import assert_all_close, assert_all_equal, assert_close
from tests.training.test_run import command, tiny_data
from tfcaps import rem
from training import (
    configs,
    features,
    networks,
    results,
    train,
)
from training.folder import RunFolder


@pytest.fixture
def backbone(tmp_path):
    """The path of a network for 12x12 pixels, whose statistics are not 0."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((12, 12, 1)),
            keras.layers.Conv2D(6, 3, 2, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
        ]
    )
    values = np.repeat([[1.5], [0.1], [0.2], [0.5]], 6, axis=1)
    model.layers[1].set_weights([*values])
    model.save(tmp_path / "features.keras")
    return str(tmp_path / "features.keras")


@pytest.fixture
def data():
    every = noise(20, 12)
    held, test = (every.test.take(slice(n)) for n in (6, 9))
    return dataclasses.replace(every, validation=held, test=test)


@pytest.fixture
def config(backbone):
    return configs.Config(
        model="parts_capsnet",
        backbone=backbone,
        epochs=2,
        batch_size=8,
        shift=0,
        rem=True,
        baseline=False,
        pruning_end=0.9,
        final_sparsity=0.5,
        counterfactual_necessity=0.1,
        sharpness_start=4.0,
    )


@contextlib.contextmanager
def not_compiled():
    """Leaves out XLA, which takes longer than these trainings."""
    plain = functools.partialmethod(keras.Model.compile, jit_compile=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keras.Model, "compile", plain)
        yield


def prepared(name, data, config, kept):
    return train.prepare(name, data, config, None, cache=kept)


@pytest.mark.slow
def test_the_head_on_kept_features_is_the_network(data, config):
    ready = prepared("baseline", data, config, {})
    for part in ("validation", "test"):
        images, labels = getattr(data, part)
        maps, kept_labels = getattr(ready.data, part)
        assert maps.pixels.dtype == np.float16
        # What is read again is what was written.
        np.testing.assert_array_equal(maps[:], maps[np.arange(len(maps))])
        assert maps.shape[1:] == (5, 5, 6)
        wanted = ready.full_model.predict(images[:], verbose=0)
        found = ready.classifier.predict(maps[:], verbose=0)
        assert_close(found, wanted, atol=2e-3)
        np.testing.assert_array_equal(kept_labels, labels)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("baseline", {}),
        pytest.param("rem", {}, marks=nightly),
        pytest.param("rem", {"pruning": "iterative"}, marks=nightly),
        pytest.param("rem", {"pruning": "snip"}, marks=nightly),
    ],
)
def test_training_on_features_is_training_on_images(
    name, changes, data, config, monkeypatch
):
    monkeypatch.setattr(features, "_DTYPE", np.float32)
    config = dataclasses.replace(config, **changes)
    with not_compiled():
        with monkeypatch.context() as patch:
            patch.setattr(features, "obstacle", lambda *of: "it is tested")
            on_images = train.prepare(name, data, config, None)
        on_features = prepared(name, data, config, {})
    frozen = on_features.full_model.get_layer("backbone").model.get_weights()
    for ready in (on_images, on_features):
        train.fit(ready.training_model, ready.batches, ready.changes, 2)
    weights = on_features.full_model.get_weights()
    assert_all_close(weights, on_images.full_model.get_weights(), atol=2e-3)
    after = on_features.full_model.get_layer("backbone").model.get_weights()
    assert_all_equal(after, frozen)


def test_what_is_kept_is_computed_once(data, config, monkeypatch):
    kept = {}
    prepared("baseline", data, config, kept)
    assert list(kept) == ["train", "validation", "test"]
    monkeypatch.setattr(features, "maps_of", pytest.fail)
    prepared("rem", data, config, kept)


@pytest.mark.slow
def test_trees_are_measured_on_what_is_kept(data, config, monkeypatch):
    kept, taken = {}, []
    model = prepared("baseline", data, config, kept).full_model
    faithfulness = rem.faithfulness

    def spied(network, *arguments, **options):
        taken.append(network.input.shape[1:])
        return faithfulness(network, *arguments, **options)

    monkeypatch.setattr(rem, "faithfulness", spied)
    with not_compiled():
        # Those of a resumed run are made anew.
        again, of_maps, of_images = (
            results.measure(config, data, {"rem": model}, maps).reports["rem"]
            for maps in ({}, kept, None)
        )
    assert taken == [(5, 5, 6), (5, 5, 6), (12, 12, 1)]
    assert again.faithfulness == of_maps.faithfulness
    for name in ("necessity", "sufficiency", "stability"):
        measured, wanted = (
            getattr(one.faithfulness, name) for one in (of_maps, of_images)
        )
        assert measured == pytest.approx(wanted, abs=0.01), name
    assert of_maps.named_parts == of_images.named_parts
    assert of_maps.multiply_adds == of_images.multiply_adds


def test_nothing_is_kept_where_it_cannot_be(data, config, capsys):
    for changes, why in (
        ({"decoder": "joint", "rem": False}, "needs images"),
        ({"routing": "regularized"}, "learns from labels"),
        ({"flip": True}, "changed at random"),
    ):
        changed = dataclasses.replace(config, **changes)
        joint = changed.decoder == "joint"
        model = networks.build_for(data, changed, decoder=joint)
        assert why in features.obstacle(model, changed)
        kept = {}
        cached = features.cache_features(model, data, changed, kept)
        assert cached.head is model and cached.data is data and not kept
        assert why in capsys.readouterr().out


@pytest.mark.slow
def test_the_plan_tells_of_the_backbone(tmp_path, backbone):
    with not_compiled():
        printed = command(
            "--dataset", tiny_data(tmp_path / "tiny.npz", size=12),
            "--model", "parts_capsnet", "--backbone", backbone, "--dry-run",
            "--batch-size", 8, "--epochs", 2, "--shift", 0,
            "--out", tmp_path / "run",
        )  # fmt: skip
    # 16 for training, 3 for validation and 8 for testing.
    assert "features 5x5x6 of 27 images are computed once, about" in printed
    assert "Baseline: 2 epochs (--epochs, the same for any" in printed
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_network_that_estimates_itself_is_measured_on_its_features(tmp_path):
    images, labels, *_ = plans.animals(100, 0)
    data, network = tmp_path / "animals.npz", tmp_path / "colours.keras"
    arrays = {"x_train": images[:70], "y_train": labels[:70]}
    np.savez(data, **arrays, x_test=images[70:], y_test=labels[70:])
    plans.backbone().save(network)
    flags = f"--model body_plan_capsnet --backbone {network} --dataset {data}"
    out = tmp_path / "run"
    said = command("--rem", "--bare", *flags.split(), "--out", out)
    assert "Form: " in said and "linear head" in said
    assert not (out / "features").exists()
    folder = RunFolder.resume(out)
    assert folder.load_model("rem").report["plans"] > 0
    report, _ = folder.read_report("rem")
    assert report.accuracy > 0.9 and report.faithfulness.pixels.local
    # As without features.
    plain = rem.evaluate(folder.load_model("rem"), (images[70:], labels[70:]))
    assert plain.total_parameters == report.total_parameters
    assert plain.accuracy == pytest.approx(report.accuracy, abs=0.04)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"decoder": True}, "takes no --decoder"),
        ({"routing": "em"}, "takes no --routing"),
    ],
)
def test_what_a_body_plan_does_not_take_is_refused(given, said):
    with pytest.raises(UserError, match=said):
        networks.build(
            "body_plan_capsnet",
            (plans.SIDE, plans.SIDE, 3),
            2,
            backbone=plans.backbone(),
            **given,
        )

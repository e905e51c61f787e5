"""Structured pruning in training: losses, replicas, resumption, trees."""

import json

import keras
import numpy as np
import pytest

import tfcaps
from tests.backends import on_tensorflow
from tests.compaction import compiled, fit
from tests.networks import SMALL_NETWORKS
from tests.rem.compaction.test_compact import assert_same
from tests.tolerance import assert_all_close
from tfcaps import rem


def in_float64(model):
    """Returns the same network, which calculates in float64."""
    config = json.dumps(model.get_config()).replace('"float32"', '"float64"')
    copy = type(model).from_config(json.loads(config))
    copy.set_weights(model.get_weights())
    return copy


@pytest.mark.slow
def test_masks_hold_with_the_losses_of_rem(images):
    network = SMALL_NETWORKS["parts_capsnet"]()
    model = rem.add_couplings(network, ramp_steps=2, counterfactual=True)
    losses = {
        "lengths": tfcaps.losses.MarginLoss(),
        "couplings": tfcaps.losses.CouplingLoss(),
        "counterfactual": tfcaps.losses.CounterfactualLoss(),
    }
    compiled(model, keras.optimizers.AdamW(0.01), loss=losses)
    x, y = images
    schedule = keras.optimizers.schedules.PolynomialDecay(0.0, 4, 0.5)
    rem.prune_structured(model, schedule)
    fit(model, (x, dict.fromkeys(losses, y)), epochs=2)
    groups = model.pruning.groups
    assert len(np.unique(groups.sites)) == 3
    keep = groups.kept(model.pruning.masks())
    assert model.pruning.reached() >= 0.5
    rem.strip_pruning(model)
    compact = rem.compact(network)
    assert rem.multiply_adds(compact).total == groups.multiply_adds(keep)
    assert_same(
        rem.capsule_outputs(compact)(x), rem.capsule_outputs(network)(x)
    )
    report = rem.evaluate(compact, images, faithfulness=True)
    assert report.multiply_adds == rem.multiply_adds(compact).total
    before = rem.evaluate(network, images, faithfulness=True)
    assert report.entropy_bits == before.entropy_bits
    assert report.faithfulness.necessity == before.faithfulness.necessity


@pytest.mark.slow
def test_inactive_capsules_of_em_stay_so_in_training(rng):
    model = compiled(SMALL_NETWORKS["em_capsnet"](), "adamw")
    images = rng.random((16, 13, 13, 1), dtype=np.float32), np.arange(16) % 3
    rem.prune_structured(model, lambda step: 0.67)
    fit(model, images)
    keep = model.pruning.groups.kept(model.pruning.masks())
    groups = model.pruning.groups
    compact = rem.compact(rem.strip_pruning(model))
    assert rem.multiply_adds(compact).total == groups.multiply_adds(keep)
    assert compact.get_layer("class_caps").grid[-1] == 3  # before
    # In float32 EM's sums differ by more than the tolerance.
    exact, wanted = (
        rem.capsule_outputs(in_float64(m))(images[0].astype("float64"))
        for m in (compact, model)
    )
    for name, outputs in wanted.items():
        np.testing.assert_allclose(exact[name], outputs, 1e-9, 1e-12)
    before, after = (rem.evaluate(m, images, 7) for m in (model, compact))
    assert before.entropy_bits == after.entropy_bits


def test_units_leave_one_after_the_other_and_never_come_back(images):
    model = compiled(SMALL_NETWORKS["parts_capsnet"]())
    rem.prune_structured(model, lambda step: min(0.1 * step, 0.6))
    left = np.ones(len(model.pruning.groups), bool)
    for step in (1, 3, 5, 4, 2, 6):
        model.pruning.begin_step(model, step)
        keep = model.pruning.groups.kept(model.pruning.masks())
        assert not np.any(keep & ~left)
        assert model.pruning.reached() >= min(0.1 * step, 0.6)
        left = keep
    history = fit(model, images)
    assert history["sparsity"] == [model.pruning.sparsity()]
    assert history["sparsity"][0] > 0.3


@on_tensorflow
@pytest.mark.slow
def test_resumed_training_goes_on_with_its_units(images, tmp_path):
    def begun():
        keras.utils.set_random_seed(1)
        model = compiled(SMALL_NETWORKS["parts_capsnet"]())
        schedule = keras.optimizers.schedules.PolynomialDecay(0.0, 6, 0.6)
        return rem.prune_structured(model, schedule)

    whole, first, second = begun(), begun(), begun()
    fit(whole, images, epochs=3)
    fit(first, images, epochs=1)
    first.save_weights(tmp_path / "back_up.weights.h5")
    second.load_weights(tmp_path / "back_up.weights.h5")
    assert second.pruning.reached() == first.pruning.reached() > 0
    fit(second, images, epochs=2)
    assert_all_close(second.weights, whole.weights)

"""Structured pruning: masked units are those that compaction removes."""

import keras
import numpy as np
import pytest

import tfcaps
from tests.compaction import assert_same, compiled, fit, randomized
from tests.networks import (
    SMALL_NETWORKS,
    every_network,
    images_of,
    sharpened,
    tiny_capsnet,
)
from tests.tolerance import SUMS, assert_all_equal
from tfcaps import rem
from tfcaps.rem.pruning.structured import UnitGroups

# How many kinds of places each network has whose units may leave.
SITES = {
    "affine_capsnet": 2,
    "backbone_dr_capsnet": 1,
    "backbone_constellation_capsnet": 0,
    "backbone_parts_capsnet": 1,
    "constellation_capsnet": 1,
    "deepcaps": 13,
    "dr_capsnet": 2,
    "efficient_capsnet": 4,
    "efficient_conv_capsnet": 5,
    "em_capsnet": 4,
    "gamma_capsnet": 2,
    "multilayer_capsnet": 2,
    "parts_capsnet": 3,
}


# Types of parts, channels of a backbone and hidden capsules of the scaled
# distance stay, so that less can leave than the half.
SHARES = {
    "constellation_capsnet": 0.1,
    "backbone_dr_capsnet": 0.3,
    "gamma_capsnet": 0.4,
}


def num_left(groups, keep):
    return np.bincount(groups.sites[keep], minlength=groups.sites.max() + 1)


@every_network
def test_compacted_network_does_what_the_masked_one_does(name, rng, tmp_path):
    keras.utils.set_random_seed(0)
    model = randomized(compiled(SMALL_NETWORKS[name]()), rng)
    if not SITES[name]:
        with pytest.raises(
            ValueError, match="no types of capsules that may leave"
        ):
            rem.prune_structured(model, lambda step: 0.5)
        return
    named = "constellation" in name
    if name not in ("em_capsnet", "deepcaps") and not named:
        sharpened(model, factor=5.0)
    inputs = images_of(model, 4)
    before = np.array(model(inputs))
    full = rem.multiply_adds(model).total
    share = SHARES.get(name, 0.5)
    rem.prune_structured(model, lambda step: share)
    pruning = model.pruning
    every = np.ones(len(pruning.groups), bool)
    assert pruning.groups.multiply_adds(every) == full
    assert len(np.unique(pruning.groups.sites)) == SITES[name]
    pruning.begin_step(model, 1)
    keep = pruning.groups.kept(pruning.masks())
    assert share <= pruning.reached() < 0.9
    assert not keep.all()
    rem.strip_pruning(model)
    masked = model.get_weights()
    compact = rem.compact(model)
    assert compact.name == model.name
    assert_all_equal(model.get_weights(), masked)
    # Types of which every child has left go too.
    counted = rem.multiply_adds(compact).total
    modelled = pruning.groups.multiply_adds(keep)
    assert counted <= round(modelled) <= (1.0 - share) * full
    assert compact.count_params() < model.count_params()
    expected = dict(rem.capsule_outputs(model)(inputs))
    assert np.max(np.abs(np.array(expected["lengths"]) - before)) > 1e-4
    # EM divides by variances, which enlarges what sums are rounded by.
    atol = 1e-5 if name == "em_capsnet" else SUMS
    assert_same(rem.capsule_outputs(compact)(inputs), expected, atol)
    shown = rem.explanation(model)(inputs)
    assert_same(rem.explanation(compact)(inputs), shown, atol)
    compact.save(tmp_path / "compact.keras")
    loaded = keras.models.load_model(tmp_path / "compact.keras")
    np.testing.assert_allclose(loaded(inputs), compact(inputs), atol=SUMS)


def test_each_layer_loses_the_same_share():
    model = compiled(SMALL_NETWORKS["efficient_capsnet"]())
    conv = model.get_layer("conv1").kernel
    conv.assign(np.array(conv) * np.linspace(0.01, 1.0, 32))
    rem.prune_structured(model, lambda step: 0.9)
    groups = model.pruning.groups
    for step, least in ((1, 0.05), (2, 0.05)):
        model.pruning.begin_step(model, step)
        keep = groups.kept(model.pruning.masks())
        left = num_left(groups, keep) / num_left(groups, keep | True)
        assert np.ptp(left) < 0.1
        assert min(left) >= least


def test_frozen_layers_and_decoders_stay():
    model = tiny_capsnet(decoder=True)
    model.get_layer("conv").trainable = False
    groups = UnitGroups(model)
    assert len(groups) == 2
    paths = [variable.path for variable in groups.variables]
    assert not [path for path in paths if "conv/kernel" == path]


def test_what_cannot_be_reached_or_was_not_is_told():
    decay = keras.optimizers.schedules.PolynomialDecay
    model = rem.prune_structured(compiled(tiny_capsnet()), decay(0.0, 4, 0.5))
    with pytest.warns(UserWarning, match=r"^0\.0% of the multiply-adds are"):
        rem.strip_pruning(model)
    dense = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    for network, message in (
        (model, "At most .* of the multiply-adds can"),
        (dense, "has no filters and no types"),
    ):
        with pytest.raises(ValueError, match=message):
            rem.prune_structured(network, decay(0.0, 4, 0.99))


def test_a_compacted_network_can_be_pruned_again(rng):
    model = randomized(compiled(tiny_capsnet(filters=6)), rng)
    inputs = images_of(model, 4)
    for _ in range(2):
        rem.prune_structured(compiled(model), lambda step: 0.2)
        model.pruning.begin_step(model, 1)
        expected, before = model(inputs), model.count_params()
        model = rem.compact(rem.strip_pruning(model))
        np.testing.assert_allclose(model(inputs), expected, atol=1e-6)
        assert model.count_params() < before


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

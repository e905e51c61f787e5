"""Structured pruning: masked units are those that compaction removes."""

import keras
import numpy as np
import pytest

import tfcaps
from tests.compaction import compiled, fit, inputs_of, randomized
from tests.networks import SMALL_NETWORKS, every_network, tiny_capsnet
from tests.rem.compaction.test_compact import sharpen
from tests.tolerance import SUMS
from tfcaps import rem
from tfcaps.rem.pruning.structured import CRITERIA, Evidence, look_ahead, taylor
from tfcaps.rem.pruning.unit_groups import KINDS, UnitGroups

# How many kinds of places each network has whose units may leave.
SITES = {
    "affine_capsnet": 4,
    "backbone_capsnet": 4,
    "backbone_parts_capsnet": 3,
    "constellation_capsnet": 2,
    "deepcaps": 24,
    "dr_capsnet": 5,
    "efficient_capsnet": 5,
    "efficient_conv_capsnet": 7,
    "em_capsnet": 4,
    "gamma_capsnet": 7,
    "multilayer_capsnet": 6,
    "parts_capsnet": 5,
}


def num_left(groups, keep):
    """Returns how many units are left of each place."""
    return np.bincount(groups.sites[keep], minlength=groups.sites.max() + 1)


@every_network
def test_compacted_network_does_what_the_masked_one_does(name, rng):
    keras.utils.set_random_seed(0)
    model = randomized(compiled(SMALL_NETWORKS[name]()), rng)
    if name not in ("em_capsnet", "deepcaps", "constellation_capsnet"):
        sharpen(model, 5.0)
    inputs = inputs_of(model)
    before = np.array(model(inputs))
    full = rem.multiply_adds(model).total
    rem.prune_structured(model, lambda step: 0.5, units=tuple(KINDS))
    pruning = model.pruning
    assert len(np.unique(pruning.groups.sites)) == SITES[name]
    pruning.begin_step(model, 1)
    keep = pruning.groups.kept(pruning.masks())
    assert 0.5 <= pruning.reached() < 0.9
    assert 1 < len(keep) - keep.sum()
    rem.strip_pruning(model)
    compact = rem.compact(model)
    # Types of which every child has left go too.
    counted = rem.multiply_adds(compact).total
    modelled = pruning.groups.multiply_adds(keep)
    assert counted <= round(modelled) <= 0.5 * full
    assert compact.count_params() <= round(pruning.groups.parameters(keep))
    expected = dict(rem.capsule_outputs(model)(inputs))
    assert np.max(np.abs(np.array(expected["lengths"]) - before)) > 1e-4
    # EM divides by variances, which enlarges what sums are rounded by.
    atol = 1e-5 if name == "em_capsnet" else SUMS
    outputs = dict(rem.capsule_outputs(compact)(inputs))
    # Components that are left out were zero.
    for shown in (outputs, expected):
        shown["poses"] = np.sort(np.abs(shown["poses"]), axis=-1)
    dim = outputs["poses"].shape[-1]
    assert not np.any(expected["poses"][..., :-dim] > 1e-30)
    expected["poses"] = expected["poses"][..., -dim:]
    if name == "constellation_capsnet":
        # Children of a type that has left are gone, and were nobody's.
        types = model.get_layer("class_caps").slots.shape[0]
        by_type = np.reshape(expected["couplings"], (4, -1, types, 3))
        absent = ~by_type.any(axis=(0, 1, 3))
        assert absent.any() and not absent.all()
        expected["couplings"] = by_type[:, :, ~absent].reshape(4, -1, 3)
    for output, wanted in expected.items():
        np.testing.assert_allclose(outputs[output], wanted, 1e-4, atol)


@pytest.mark.parametrize(
    ("name", "units"),
    [
        ("efficient_capsnet", ("filters", "types")),
        ("em_capsnet", ("filters", "types")),
        ("gamma_capsnet", ("components",)),
        ("multilayer_capsnet", ("types", "components")),
    ],
)
def test_cost_is_that_of_the_compacted_network(name, units, rng):
    model = randomized(compiled(SMALL_NETWORKS[name]()), rng)
    groups = UnitGroups(model, units)
    whole = np.ones(len(groups), bool)
    assert groups.multiply_adds(whole) == rem.multiply_adds(model).total
    assert groups.parameters(whole) == model.count_params()
    rem.prune_structured(
        model, lambda step: 0.3, units=units, target="parameters"
    )
    model.pruning.begin_step(model, 1)
    keep = groups.kept(model.pruning.masks())
    compact = rem.compact(rem.strip_pruning(model))
    counted = rem.multiply_adds(compact).total
    assert groups.multiply_adds(keep) == pytest.approx(counted, abs=SUMS)
    assert groups.parameters(keep) == compact.count_params()
    assert compact.count_params() <= 0.7 * model.count_params()


def test_scopes_and_least_shares():
    model = compiled(SMALL_NETWORKS["efficient_capsnet"]())
    conv = model.get_layer("conv1").kernel
    conv.assign(np.array(conv) * np.linspace(0.01, 1.0, 32))
    left = {}
    for scope in ("layer", "global"):
        rem.prune_structured(
            model, lambda step: 0.5, scope=scope, min_share=0.25
        )
        model.pruning.begin_step(model, 1)
        groups = model.pruning.groups
        keep = groups.kept(model.pruning.masks())
        left[scope] = num_left(groups, keep) / num_left(groups, keep | True)
        rem.strip_pruning(model)
        model = compiled(SMALL_NETWORKS["efficient_capsnet"]())
        model.get_layer("conv1").kernel.assign(conv)
    assert np.ptp(left["layer"]) < 0.1
    assert np.ptp(left["global"]) > 0.2
    assert min(left["global"]) >= 0.25


def test_look_ahead_scores_are_those_of_the_definition(rng):
    model = tiny_capsnet()
    groups = UnitGroups(model, ("filters", "types"))
    evidence = Evidence(
        [np.asarray(v) for v in groups.variables], lambda: [], rng
    )
    first = np.array(model.get_layer("conv").kernel)  # [3, 3, 1, 4]
    second = np.array(model.get_layer("primary_caps").conv.kernel)
    third = np.array(model.get_layer("class_caps").transformation)
    third = third.reshape(2, 2, 2, 3, 4, 4)
    expected = []
    for o in range(4):
        following = np.linalg.norm(second[:, :, o])
        expected.append(sum(np.abs(first[..., o]).ravel()) * following)
    for t in range(2):
        following = np.linalg.norm(third[:, :, t])
        expected.append(
            sum(
                np.abs(second[:, :, i, 4 * t : 4 * t + 4]).sum()
                * np.linalg.norm(first[..., i])
                for i in range(4)
            )
            * following
        )
    np.testing.assert_allclose(look_ahead(groups, evidence), expected, 1e-5)


def test_taylor_scores_are_the_change_of_the_loss_to_first_order(images):
    routing = tfcaps.routing.DynamicRouting(gradient="full")
    model = compiled(tiny_capsnet(routing=routing))
    sharpen(model, 10.0)
    rem.prune_structured(
        model, lambda s: 0.5, criterion="taylor", batches=[images]
    )
    pruning = model.pruning
    before = model.get_weights()
    scores = taylor(
        pruning.groups,
        Evidence(
            [np.asarray(v) for v in pruning.variables],
            lambda: pruning._towards(model),
            None,
        ),
    )
    loss = tfcaps.losses.MarginLoss()
    step = 1e-2
    for group in range(len(scores)):
        losses = []
        for factor in (1.0 - step, 1.0 + step):
            model.set_weights(before)
            for s in pruning.groups.slices:
                if s.side == "made":
                    chosen = s.groups == group
                    scale = np.where(chosen, factor, 1.0)
                    shape = [1] * len(s.variable.shape)
                    shape[s.axis] = -1
                    s.variable.assign(
                        np.array(s.variable) * scale.reshape(shape)
                    )
            losses.append(float(loss(images[1], model(images[0]))))
        slope = (losses[1] - losses[0]) / (2 * step)
        # Losses of float32 tell slopes to about 1e-5.
        change = np.sqrt(scores[group])
        assert change == pytest.approx(abs(slope), rel=0.05, abs=1e-5)
    model.set_weights(before)
    fit(model, images)
    assert pruning.reached() >= 0.5


@pytest.mark.parametrize("criterion", CRITERIA)
def test_every_criterion_prunes(criterion, images):
    model = compiled(tiny_capsnet(filters=8))
    rem.prune_structured(
        model, lambda step: 0.5, criterion=criterion, batches=[images]
    )
    model.pruning.begin_step(model, 1)
    assert 0.5 <= model.pruning.reached() < 0.75


def test_random_units_depend_on_the_seed():
    kept = []
    for seed in (0, 0, 1):
        model = compiled(tiny_capsnet(filters=32))
        rem.prune_structured(
            model, lambda step: 0.5, criterion="random", seed=seed
        )
        model.pruning.begin_step(model, 1)
        kept.append(model.pruning.groups.kept(model.pruning.masks()))
    np.testing.assert_array_equal(kept[0], kept[1])
    assert np.any(kept[0] != kept[2])


def test_frozen_layers_and_decoders_stay():
    model = tiny_capsnet(decoder=True)
    model.get_layer("conv").trainable = False
    groups = UnitGroups(model, ("filters", "types"))
    assert len(groups) == 2
    paths = [variable.path for variable in groups.variables]
    assert not [path for path in paths if "conv/kernel" == path]


def test_pruning_that_did_not_come_to_its_end_is_told():
    model = compiled(tiny_capsnet())
    schedule = keras.optimizers.schedules.PolynomialDecay(0.0, 4, 0.5)
    rem.prune_structured(model, schedule, target="parameters")
    with pytest.warns(UserWarning, match=r"^0\.0% of the parameters are prun"):
        rem.strip_pruning(model)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"units": "layers"}, "`units` must be of"),
        ({"units": ()}, "`units` must be of"),
        ({"criterion": "l1"}, "`criterion` must be of"),
        ({"target": "milliseconds"}, "`target` must be of"),
        ({"scope": "tensor"}, "`scope` must be of"),
        ({"min_share": 0.0}, r"`min_share` must be in \(0, 1\]"),
        ({"criterion": "taylor"}, "takes gradients of the loss: give `batch"),
        ({"frequency": 0}, "`frequency` must be at least 1"),
        ({"min_share": 0.9}, "At most .* of the multiply-adds can be removed"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_arguments_are_errors(settings, message):
    schedule = keras.optimizers.schedules.PolynomialDecay(0.0, 4, 0.5)
    with pytest.raises(ValueError, match=message):
        rem.prune_structured(tiny_capsnet(), schedule, **settings)


def test_a_model_without_such_units_is_an_error():
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(2, name="lengths")(inputs))
    with pytest.raises(ValueError, match="has no filters or types that may"):
        rem.prune_structured(model, lambda step: 0.5)


@pytest.mark.parametrize(
    "name", ["affine_capsnet", "dr_capsnet", "parts_capsnet"]
)
def test_a_compacted_network_can_be_pruned_and_compacted_again(name, rng):
    sizes = {"primary_types": 6, "filters": 6}
    if name == "parts_capsnet":
        sizes["filters"] = (6, 6)
    make = SMALL_NETWORKS[name]
    model = randomized(make.func(*make.args, **{**make.keywords, **sizes}), rng)
    inputs = inputs_of(model)
    for _ in range(2):
        compiled(model)
        full = rem.multiply_adds(model).total
        rem.prune_structured(model, lambda step: 0.4, units=tuple(KINDS))
        model.pruning.begin_step(model, 1)
        groups, masks = model.pruning.groups, model.pruning.masks()
        modelled = groups.multiply_adds(groups.kept(masks))
        rem.strip_pruning(model)
        compact = rem.compact(model)
        counted = rem.multiply_adds(compact).total
        assert counted <= round(modelled) <= 0.6 * full
        expected = rem.capsule_outputs(model)(inputs)
        outputs = rem.capsule_outputs(compact)(inputs)
        for shown in ("lengths", "couplings"):
            np.testing.assert_allclose(
                outputs[shown], expected[shown], 1e-4, 1e-6
            )
        model = compact
    last = model.get_layer("class_caps")
    assert type(last).__name__ == "CompactCaps"
    assert expected["couplings"].shape[1] == np.prod(last.grid)

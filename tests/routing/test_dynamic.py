"""Dynamic routing: what it computes, sharp, leaky, and with fewer parents."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from tests import reference
from tests.golden import assert_golden, load
from tests.gradients import value_and_gradients
from tests.networks import of_capsules
from tests.tolerance import assert_all_close, assert_close
from tfcaps import rem
from tfcaps.layers import ClassCaps
from tfcaps.losses import MarginLoss
from tfcaps.ops import quantize, squash
from tfcaps.routing import (
    Block,
    DynamicRouting,
    EMRouting,
    FactoredVotes,
    SelfAttentionRouting,
    UniformRouting,
)

ITERATIONS = [1, 2, 3, 5]


def route(routing, golden, bias=None):
    """Returns the result of a routing and the gradients of votes and bias."""
    routed = routing(golden["votes"], bias=bias)
    bias = np.zeros_like(golden["votes"][0, 0]) if bias is None else bias
    _, gradients = value_and_gradients(
        lambda votes, bias: routing(votes, bias=bias).poses,
        golden["votes"],
        bias,
        upstream=golden["upstream"],
    )
    return routed._asdict(), *gradients


@pytest.mark.parametrize("iterations", ITERATIONS)
def test_last_gradient_equals_the_public_implementation(iterations):
    golden, at = load("02_dynamic_routing"), f"iter{iterations}"
    routing = DynamicRouting(iterations)
    routed, of_votes, of_bias = route(routing, golden, golden["bias"])
    assert_golden(golden, f"{{}}_{at}", **routed)
    assert_golden(golden, f"grad_{{}}_last_only_{at}", 1e-4, votes=of_votes)
    assert_golden(golden, f"grad_{{}}_const_couplings_{at}", 1e-4, bias=of_bias)


@pytest.mark.parametrize(
    ("gradient", "name"), [("full", "through"), ("last", "last_only")]
)
@pytest.mark.parametrize("iterations", ITERATIONS)
def test_routing_without_bias_equals_the_public_one(iterations, gradient, name):
    golden, at = load("02_dynamic_routing_nobias"), f"iter{iterations}"
    routed, of_votes, _ = route(DynamicRouting(iterations, gradient), golden)
    assert_golden(golden, f"{{}}_{at}", **routed)
    assert_golden(golden, f"grad_{{}}_{name}_{at}", 1e-4, votes=of_votes)


@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("levels", [5, 11])
def test_quantized_routing_equals_the_public_one(levels, iterations):
    golden, at = load(f"03_quantized_routing_K{levels}"), f"iter{iterations}"
    routing = DynamicRouting(iterations, levels=levels)
    routed, of_votes, _ = route(routing, golden, golden["bias"])
    codes = np.asarray(quantize(routed["couplings"], levels))
    np.testing.assert_array_equal(codes, golden[f"bin_index_{at}"])
    np.testing.assert_array_equal(codes + 1, golden[f"dictionary_bin_{at}"])
    rounded = routed.pop("couplings")
    assert_golden(golden, f"{{}}_quantized_{at}", couplings=rounded)
    assert_golden(golden, f"{{}}_{at}", **routed)
    assert_golden(golden, f"grad_{{}}_{at}", 1e-4, votes=of_votes)


def test_coupling_on_an_edge_goes_down_and_leaves_the_bias_alone():
    golden = load("03_bin_edges")
    routed = DynamicRouting(1, levels=5)(
        golden["onedge_votes"], bias=golden["onedge_bias"]
    )
    assert_golden(golden, "onedge_{}", **routed._asdict())
    assert not np.any(routed.couplings)


def one_hot_votes(children=6, parents=3, dim=4):
    """Children that vote for one parent each, and for nothing else."""
    votes = np.zeros((1, children, parents, dim), "float32")
    for i in range(children):
        votes[0, i, i % parents, 0] = 0.2
    return votes


@pytest.mark.parametrize(
    "leak", [{}, {"leaky": True}, {"leaky": True, "orphan": 0.05}], ids=str
)
@pytest.mark.parametrize("sharpness", [0.5, 1.0, 30.0])
@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_routing_equals_the_loops(leak, sharpness, iterations, rng):
    votes = rng.normal(size=(2, 5, 3, 4)).astype("float32")
    votes *= min(1.0, 2.0 / sharpness)
    bias = rng.normal(size=(3, 4)).astype("float32")
    settings = {"sharpness": sharpness, **leak}
    routed = DynamicRouting(iterations, **settings)(votes, bias=bias)
    poses, couplings = reference.dynamic_routing(
        votes, bias, iterations, **settings
    )
    assert_close(routed.poses, poses, atol=1e-5)
    assert_close(routed.couplings, couplings, atol=1e-5)
    lengths = np.linalg.norm(poses, axis=-1)
    assert_close(routed.activations, lengths, atol=1e-5)


def test_a_child_below_the_orphans_agreement_abstains():
    routing = DynamicRouting(leaky=True, sharpness=200.0, orphan=0.05)
    votes = np.concatenate([one_hot_votes(60), one_hot_votes(3) / 100], axis=1)
    totals = np.sum(routing(votes).couplings, axis=-1)[0]
    assert totals[:60].min() > 0.9 and totals[60:].max() < 0.01
    crowd = DynamicRouting(leaky=True, sharpness=200.0)(votes)
    assert np.sum(crowd.couplings, axis=-1)[0, 60:].min() > 0.5


def test_learnt_settings_are_weights_that_begin_where_they_are_told():
    start = {"leaky": True, "sharpness": 20.0, "orphan": 0.1}
    modes = {"sharpness_mode": "learned", "orphan_mode": "learned"}
    layer = ClassCaps(3, 4, routing=DynamicRouting(**start, **modes))
    children = np.ones((2, 5, 4), "float32")
    couplings = layer(children, return_couplings=True)[1]
    assert float(layer.log_sharpness) == pytest.approx(math.log(20.0))
    assert float(layer.orphan_agreement) == pytest.approx(0.1)
    assert len(layer.trainable_weights) == 4
    votes = ops.einsum("bik,ijkd->bijd", children, layer.transformation)
    expected = DynamicRouting(**start)(votes, bias=layer.bias)
    assert_close(couplings, expected.couplings)


@pytest.mark.parametrize("gradient", ["last", "full"])
def test_a_loss_of_couplings_reaches_sharpness_and_orphan(gradient, rng):
    votes = rng.normal(size=(2, 5, 3, 4)).astype("float32")
    routing = DynamicRouting(gradient=gradient, leaky=True)

    def couplings(log_sharpness, orphan):
        return routing(
            votes, log_sharpness=log_sharpness, orphan_agreement=orphan
        ).couplings[..., 0]

    at = np.float32(0.5), np.float32(0.1)
    _, slopes = value_and_gradients(couplings, *at)
    assert all(np.isfinite(s) and abs(float(s)) > 1e-3 for s in slopes)
    step = 1e-2

    def total(*values):
        return float(ops.sum(couplings(*map(np.float32, values))))

    if gradient == "full":
        for k, slope in enumerate(slopes):
            up, down = np.array(at), np.array(at)
            up[k] += step
            down[k] -= step
            measured = (total(*up) - total(*down)) / (2 * step)
            assert float(slope) == pytest.approx(measured, rel=0.02)


def test_a_scheduled_sharpness_is_set_saved_and_loaded(tmp_path, rng):
    routing = DynamicRouting(sharpness=2.0, sharpness_mode="scheduled")
    model = of_capsules(ClassCaps(3, 4, routing=routing, name="caps"), 5, 4)
    training = rem.add_couplings(model)
    training.compile("sgd", {"lengths": MarginLoss()})
    images = rng.random((8, 5, 4), dtype=np.float32)
    targets = dict.fromkeys(training.output, np.arange(8) % 3)
    seen = []

    def note(epoch, logs):
        seen.append(math.exp(float(model.get_layer("caps").log_sharpness)))

    callbacks = [
        rem.SharpnessSchedule(lambda epoch: 10.0 * (epoch + 1)),
        keras.callbacks.LambdaCallback(on_epoch_begin=note),
    ]
    training.fit(images, targets, 4, 2, verbose=0, callbacks=callbacks)
    assert seen == pytest.approx([10.0, 20.0])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(images), model(images))
    for other in (loaded, rem.quantize_couplings(model, 11)):
        weight = other.get_layer("caps").log_sharpness
        assert float(weight) == pytest.approx(math.log(20))
        assert not weight.trainable


def test_a_schedule_for_nothing_or_to_nothing_is_an_error(rng):
    model = of_capsules(ClassCaps(3, 4), 5, 4)
    model.compile("sgd", MarginLoss())
    schedule = rem.SharpnessSchedule(lambda epoch: 0.0)
    schedule.set_model(model)
    with pytest.raises(ValueError, match='sharpness_mode="scheduled"'):
        schedule.on_train_begin()
    with pytest.raises(ValueError, match="above 0. Received: 0.0 for epoch 3"):
        schedule.on_epoch_begin(3)


@pytest.mark.parametrize("shape", [(2, 5, 3, 4), (1, 8, 2, 1)])
def test_uniform_routing_equals_one_iteration_by_agreement(shape, rng):
    votes = rng.normal(size=shape).astype("float32")
    bias = rng.normal(size=shape[2:]).astype("float32")
    routed = UniformRouting()(votes, bias=bias)
    np.testing.assert_allclose(routed.couplings, 1 / shape[2], rtol=1e-6)
    assert_all_close(routed, DynamicRouting(1)(votes, bias=bias))


def test_rounded_uniform_couplings_make_the_poses(rng):
    votes = rng.normal(size=(2, 5, 3, 4)).astype("float32")
    routed = UniformRouting(levels=5)(votes)
    np.testing.assert_allclose(routed.couplings, 0.25)
    poses = squash(0.25 * votes.sum(axis=1))
    assert_close(routed.poses, poses)


# Parents that were removed: silent ones still compete, absent ones do not.
SETTINGS = {
    "dynamic": (DynamicRouting, {"sharpness": 3.0}),
    "dynamic-one": (DynamicRouting, {"iterations": 1}),
    "dynamic-leaky": (DynamicRouting, {"leaky": True, "orphan": 0.1}),
    "self_attention": (SelfAttentionRouting, {}),
    "uniform": (UniformRouting, {}),
}


@pytest.mark.parametrize("parents", [1, 3])
@pytest.mark.parametrize("name", SETTINGS)
def test_silent_parents_compete_as_those_of_zero_votes_do(name, parents, rng):
    make, settings = SETTINGS[name]
    votes = rng.normal(size=(2, 5, parents + 2, 4)).astype("float32")
    votes[:, :, parents:] = 0.0
    bias = rng.normal(size=(parents + 2, 4)).astype("float32")
    bias[parents:] = 0.0
    if make is SelfAttentionRouting:  # its bias is one of couplings
        bias = rng.normal(size=(5, parents + 2)).astype("float32")
    whole = make(**settings)(votes, bias=bias)
    kept = bias[..., :parents] if make is SelfAttentionRouting else bias[:-2]
    routing = make(**settings, silent_parents=2)
    left = routing(votes[:, :, :parents], bias=kept)
    expected = (
        whole.poses[:, :parents],
        whole.activations[:, :parents],
        whole.couplings[..., :parents],
    )
    assert_all_close(left, expected)
    assert not np.any(whole.poses[:, parents:])


def test_silent_parents_of_factored_votes(rng):
    poses = rng.normal(size=(2, 3, 2, 4)).astype("float32")
    maps = rng.normal(size=(2, 5, 4, 6)).astype("float32")
    maps[:, 3:] = 0.0
    whole = DynamicRouting()(FactoredVotes([Block(poses, maps)]))
    votes = FactoredVotes([Block(poses, maps[:, :3])])
    left = DynamicRouting(silent_parents=2)(votes)
    assert_close(left.couplings, whole.couplings[..., :3])
    assert_close(left.poses, whole.poses[:, :3])


@pytest.mark.parametrize("variant", ["paper", "code"])
def test_absent_parents_of_em_are_as_if_they_were_not_there(variant, rng):
    routing = EMRouting(3, 0.1, 0.01, variant=variant)
    votes = rng.normal(size=(2, 6, 4, 9)).astype("float32")
    beta_u, beta_a = rng.normal(size=(2, 4)).astype("float32")
    beta_a[[0, 2]] = routing.absent
    acts = rng.uniform(size=(2, 6)).astype("float32")
    whole = routing(votes, acts, beta_u=beta_u, beta_a=beta_a)
    left = routing(
        votes[:, :, 1::2], acts, beta_u=beta_u[1::2], beta_a=beta_a[1::2]
    )
    assert_close(whole.poses[:, 1::2], left.poses, atol=1e-5)
    assert_close(whole.couplings[..., 1::2], left.couplings)
    assert_close(whole.activations[:, 1::2], left.activations)
    assert not np.any(whole.couplings[..., ::2])
    assert not np.any(whole.activations[:, ::2])

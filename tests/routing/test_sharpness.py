"""Sharp routing, children that may abstain, and weights for both."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from tests import reference
from tests.gradients import value_and_gradients
from tests.networks import of_capsules
from tests.tolerance import assert_close
from tfcaps import rem
from tfcaps.layers import ClassCaps
from tfcaps.losses import MarginLoss
from tfcaps.routing import DynamicRouting


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
def test_sharp_routing_equals_the_loops(leak, sharpness, iterations, rng):
    votes = 0.2 * rng.normal(size=(2, 5, 3, 4)).astype("float32")
    bias = rng.normal(size=(3, 4)).astype("float32")
    settings = {"sharpness": sharpness, **leak}
    routed = DynamicRouting(iterations, **settings)(votes, bias=bias)
    poses, couplings = reference.dynamic_routing(
        votes, bias, iterations, **settings
    )
    assert_close(routed.poses, poses, atol=1e-5)
    assert_close(routed.couplings, couplings, atol=1e-5)


def test_a_sharpness_of_one_is_todays_routing(rng):
    votes = rng.normal(size=(2, 5, 3, 4)).astype("float32")
    before = DynamicRouting()(votes)
    fixed = DynamicRouting(sharpness=1.0)(votes)
    np.testing.assert_array_equal(before.couplings, fixed.couplings)
    weighted = DynamicRouting(sharpness_mode="scheduled")(
        votes, log_sharpness=np.float32(0.0)
    )
    np.testing.assert_array_equal(before.poses, weighted.poses)


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

"""What single routings have: learnt settings, steps, absent parents, places."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from tests import reference
from tests.gradients import value_and_gradients
from tests.networks import of_capsules
from tests.tolerance import assert_all_close, assert_close
from tfcaps import rem
from tfcaps.callbacks import SharpnessSchedule
from tfcaps.layers import ClassCaps
from tfcaps.losses import MarginLoss
from tfcaps.ops import efficient_squash
from tfcaps.routing import (
    DynamicRouting,
    EMRouting,
    RegularizedRouting,
    SelfAttentionRouting,
)


@pytest.fixture
def votes(rng):
    return rng.normal(size=(2, 5, 3, 4)).astype("float32")


def test_arguments_of_version_0_2_are_read():
    config = DynamicRouting(2, levels=3).get_config()
    config |= {"orphan_mode": "fixed", "levels_mode": "midrise"}
    del config["mode"]
    routing = DynamicRouting.from_config(config)
    assert (routing.iterations, routing.mode) == (2, "midrise")


def test_a_scheduled_sharpness_is_set_saved_and_loaded(tmp_path, rng):
    routing = DynamicRouting(sharpness=2.0, sharpness_mode="scheduled")
    model = of_capsules(ClassCaps(3, 4, routing=routing, name="caps"), 5, 4)
    training = rem.add_couplings(model)
    training.compile("sgd", {"lengths": MarginLoss()}, run_eagerly=True)
    images = rng.random((8, 5, 4), dtype=np.float32)
    targets = dict.fromkeys(training.output, np.arange(8) % 3)
    schedule = SharpnessSchedule(lambda epoch: 10.0 * (epoch + 1))
    training.fit(images, targets, 8, 2, verbose=0, callbacks=[schedule])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(images), model(images))
    for other in (loaded, rem.quantize_couplings(model, 11)):
        weight = other.get_layer("caps").log_sharpness
        assert float(weight) == pytest.approx(math.log(20))
        assert not weight.trainable


def test_a_schedule_for_nothing_or_to_nothing_is_an_error():
    schedule = SharpnessSchedule(lambda epoch: 0.0)
    schedule.set_model(of_capsules(ClassCaps(3, 4), 5, 4))
    with pytest.raises(ValueError, match='sharpness_mode="scheduled"'):
        schedule.on_train_begin()
    with pytest.raises(ValueError, match="above 0. Received: 0.0 for epoch 3"):
        schedule.on_epoch_begin(3)


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


def test_last_gradient_of_self_attention_takes_couplings_for_constants(
    votes, rng
):
    bias = rng.normal(size=(5, 3)).astype("float32")
    routing = SelfAttentionRouting(gradient="last")
    couplings = routing(votes).couplings

    def with_constants(votes, bias):
        total = ops.einsum("bij,bijd->bjd", couplings + bias, votes)
        return efficient_squash(total)

    _, gradients = value_and_gradients(
        lambda votes, bias: routing(votes, bias=bias).poses, votes, bias
    )
    _, constant = value_and_gradients(with_constants, votes, bias)
    assert_all_close(gradients, constant, atol=1e-5)


@pytest.mark.parametrize("strength", [0.001, 10.0])
@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_a_step_of_coefficients_climbs_the_objective(
    penalty, strength, votes, rng
):
    coefficients = rng.normal(size=(5, 3)).astype("float32")
    # An image of two classes, and one of none.
    targets = np.array([[1, 1, 0], [0, 0, 0]], "float32")
    routing = RegularizedRouting(penalty, strength, rate=1e-3)
    stepped = np.asarray(routing.step(votes, coefficients, targets))
    slopes = np.zeros((5, 3))
    for index in np.ndindex(slopes.shape):
        nudge = np.zeros_like(slopes)
        nudge[index] = 1e-6
        up, down = (
            reference.regularized_objective(
                votes.astype("float64"), values, targets, penalty, strength
            )
            for values in (coefficients + nudge, coefficients - nudge)
        )
        slopes[index] = (up - down) / 2e-6
    assert_close(stepped - coefficients, 1e-3 * slopes)
    assert not np.any(routing.step(votes, 0 * coefficients, targets))
    _, (gradient,) = value_and_gradients(
        lambda votes: routing.step(votes, coefficients, targets), votes
    )
    assert not np.any(gradient)

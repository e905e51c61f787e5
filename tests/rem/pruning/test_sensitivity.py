"""Sensitivity-gated decay: the rule, schedules, saving."""

import inspect

import keras
import numpy as np
import pytest

from tests.tolerance import assert_close
from tfcaps import rem


def one_layer():
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])


def step(optimizer, model, kernel_gradient):
    kernel, bias = model.trainable_variables
    gradients = [kernel_gradient, np.zeros(bias.shape, "float32")]
    tensors = [keras.ops.convert_to_tensor(g) for g in gradients]
    optimizer.apply(tensors, [kernel, bias])


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_weights_shrink_by_the_gated_rate_beside_the_same_update(kind, rng):
    gradient = rng.normal(size=(3, 2)).astype("float32")
    start, kernels = rng.normal(size=(3, 2)), []
    for wrap in (lambda own: own, lambda own: rem.sensitivity_decay(own, 0.05)):
        model = one_layer()
        model.set_weights([start, np.ones(2)])
        step(wrap(getattr(keras.optimizers, kind)(0.1)), model, gradient)
        np.testing.assert_array_equal(model.layers[0].bias, np.ones(2))
        kernels.append(model.layers[0].kernel.numpy())
    gate = np.maximum(0.0, 1.0 - np.abs(gradient))
    assert_close(kernels[1], kernels[0] - 0.05 * start * gate)


ONCE = keras.optimizers.schedules.PiecewiseConstantDecay([0], [0.5, 0.0])


@pytest.mark.parametrize(
    ("settings", "left"),
    [({"rate": ONCE}, 0.5), ({"rate": 0.5, "targets": "transformations"}, 1.0)],
)
def test_rate_may_follow_a_schedule_and_targets_choose(settings, left):
    model = one_layer()
    model.set_weights([np.ones((3, 2)), np.zeros(2)])
    sgd = rem.sensitivity_decay(keras.optimizers.SGD(0.0), **settings)
    for _ in range(2):
        step(sgd, model, np.zeros((3, 2), "float32"))
        np.testing.assert_allclose(model.layers[0].kernel, left)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, cls in inspect.getmembers(keras.optimizers, inspect.isclass)
        if issubclass(cls, keras.optimizers.Optimizer)
        and name not in ("Optimizer", "LossScaleOptimizer", "MultiOptimizer")
    ],
)
def test_every_keras_optimizer_can_have_it(name):
    if name == "Muon" and keras.__version__.startswith("3.12."):
        pytest.skip("Keras 3.12's own Muon trains nothing on TensorFlow")
    model = one_layer()
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    optimizer = rem.sensitivity_decay(
        getattr(keras.optimizers, name)(), rate, targets="kernels"
    )
    step(optimizer, model, np.full((3, 2), 0.1, "float32"))
    assert np.all(np.isfinite(model.layers[0].kernel))
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(copy) is type(optimizer)
    assert copy.get_config() == optimizer.get_config()


def test_wrong_use_is_an_error():
    fresh, used = keras.optimizers.SGD(), keras.optimizers.SGD()
    used.build(one_layer().trainable_variables)
    wrapper = keras.optimizers.LossScaleOptimizer(used)
    for optimizer, rate, said in (
        (fresh, 2.0, r"`rate` must be in \[0, 1\]"),
        (fresh, "x", "rate='x'"),
        ("adam", 0.1, "must be an object such as"),
        (wrapper, 0.1, "inside LossScaleOptimizer"),
        (used, 0.1, "has been used"),
    ):
        with pytest.raises(ValueError, match=said):
            rem.sensitivity_decay(optimizer, rate)

"""Sensitivity-gated decay: the rule, schedules, saving."""

import inspect

import keras
import numpy as np
import pytest

from tests.tolerance import SUMS
from tfcaps import rem


def one_layer():
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])


def step(optimizer, model, kernel_gradient):
    kernel, bias = model.trainable_variables
    gradients = [kernel_gradient, np.zeros(bias.shape, "float32")]
    tensors = [keras.ops.convert_to_tensor(g) for g in gradients]
    optimizer.apply(tensors, [kernel, bias])


def test_weights_shrink_by_the_gated_rate_before_the_update(rng):
    model = one_layer()
    model.set_weights([rng.normal(size=(3, 2)), np.ones(2)])
    before = model.layers[0].kernel.numpy()
    gradient = rng.normal(size=(3, 2)).astype("float32")
    sgd = rem.sensitivity_decay(keras.optimizers.SGD(0.1), 0.05)
    step(sgd, model, gradient)
    gate = np.maximum(0.0, 1.0 - np.abs(gradient))
    expected = before - 0.05 * before * gate - 0.1 * gradient
    np.testing.assert_allclose(model.layers[0].kernel, expected, atol=SUMS)
    np.testing.assert_array_equal(model.layers[0].bias, np.ones(2))


def test_adam_sees_the_gradient_without_the_decay(rng):
    gradient = rng.normal(size=(3, 2)).astype("float32")
    start = [rng.normal(size=(3, 2)), np.zeros(2)]
    results = []
    for wrap in (False, True):
        model = one_layer()
        model.set_weights(start)
        adam = keras.optimizers.Adam(0.1)
        step(
            rem.sensitivity_decay(adam, 0.0) if wrap else adam, model, gradient
        )
        results.append(model.layers[0].kernel.numpy())
    np.testing.assert_array_equal(*results)


def test_rate_may_follow_a_schedule():
    model = one_layer()
    model.set_weights([np.ones((3, 2)), np.zeros(2)])
    rate = keras.optimizers.schedules.PiecewiseConstantDecay([0], [0.5, 0.0])
    sgd = rem.sensitivity_decay(keras.optimizers.SGD(0.0), rate)
    step(sgd, model, np.zeros((3, 2), "float32"))
    np.testing.assert_allclose(model.layers[0].kernel, 0.5)
    step(sgd, model, np.zeros((3, 2), "float32"))
    np.testing.assert_allclose(model.layers[0].kernel, 0.5)


def test_targets_choose_what_decays():
    model = one_layer()
    model.set_weights([np.ones((3, 2)), np.zeros(2)])
    sgd = rem.sensitivity_decay(
        keras.optimizers.SGD(0.0), 0.5, targets="transformations"
    )
    step(sgd, model, np.zeros((3, 2), "float32"))
    np.testing.assert_array_equal(model.layers[0].kernel, np.ones((3, 2)))


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

"""A training that is no longer finite stops, and says where it began."""

import keras
import numpy as np
import pytest
from keras import ops

from cli import UserError
from training.batches import Batches
from training.finite import StopIfNotFinite, guarded
from training.image_data import Images


@keras.saving.register_keras_serializable(package="tests")
class Apply(keras.layers.Layer):
    """Applies a function, whose weight scales what it is applied to."""

    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = function

    def build(self, input_shape):
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def call(self, inputs):
        return self.function(self.scale * inputs)


def data(zeros=()):
    """Twelve images of one pixel; those whose labels are in `zeros` are 0."""
    images = np.full((12, 1, 1, 1), 0.5, "float32")
    labels = np.arange(12)
    images[list(zeros)] = 0.0
    batches = Images(images), labels
    return Batches(*batches, 4, seed=3, arrange=lambda x, y: (x, y % 2))


def network(function, optimizer=None, wrap=guarded):
    keras.utils.set_random_seed(0)
    images = keras.Input((1, 1, 1), name="images")
    features = keras.layers.Conv2D(2, 1, name="first")(images)
    features = Apply(function, name="middle")(features)
    features = keras.layers.Flatten()(features)
    output = keras.layers.Dense(1, name="last")(features)
    model = keras.Model(images, output)
    model.compile(wrap(optimizer or keras.optimizers.SGD(0.0)), "mse")
    return model


def fit(model, batches, epochs=2):
    starter = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: batches.start_epoch(epoch)
    )
    model.fit(
        batches,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=[starter, StopIfNotFinite(batches)],
    )


def step_of(label, epoch):
    batches = data()
    batches.start_epoch(epoch)
    return 1 + int(np.flatnonzero(batches._order == label)[0]) // 4


@pytest.mark.parametrize("label", range(0, 12, 3))
def test_a_loss_that_is_not_finite_names_the_step_and_the_layer(label):
    # The logarithm of the one image that is 0 is infinite.
    model = network(lambda x: ops.log(ops.abs(x)))
    before = model.get_weights()
    expected = (
        rf"loss became .* in step {step_of(label, 0)} of epoch 1; .* is the "
        "output of the layer 'middle'"
    )
    with pytest.raises(UserError, match=expected):
        fit(model, data([label]))
    for mine, theirs in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_gradient_that_is_not_finite_names_the_step_and_the_weight():
    # The square root of 0 is finite, its derivative is not.
    model = network(lambda x: ops.sqrt(ops.abs(x)))
    expected = (
        f"a gradient .* in step {step_of(5, 0)} of epoch 1; .* is the gradient "
        "of the weight .*middle/scale"
    )
    with pytest.raises(UserError, match=expected):
        fit(model, data([5]))


def test_of_finite_outputs_the_loss_is_named():
    model = network(lambda x: 3e20 * ops.sign(x))
    model.get_layer("first").kernel.assign(np.ones((1, 1, 1, 2)))
    model.get_layer("last").kernel.assign(np.ones((2, 1)))
    with pytest.raises(UserError, match="step 1 of .* is the loss, of outputs"):
        fit(model, data())


def test_weights_that_overflow_and_bad_images_are_named():
    model = network(lambda x: x)
    model.get_layer("last").kernel.assign(np.full((2, 1), np.inf))
    with pytest.raises(UserError, match="is the weight .*last/kernel"):
        fit(model, data())
    batches = data()
    batches.images.pixels[4] = np.nan
    with pytest.raises(UserError, match="is the input 'images'"):
        fit(network(lambda x: x), batches)


@pytest.mark.slow
def test_a_finite_training_is_what_it_is_without_the_guard():
    def weights(wrap):
        adam = keras.optimizers.Adam(0.1, clipnorm=1.0)
        model = network(ops.tanh, adam, wrap)
        model.fit(data(), epochs=3, shuffle=False, verbose=0)
        return model.get_weights()

    guarded_ones = weights(guarded)
    for mine, theirs in zip(
        guarded_ones, weights(lambda adam: adam), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)
    assert np.any(guarded_ones[0] != network(ops.tanh).get_weights()[0])

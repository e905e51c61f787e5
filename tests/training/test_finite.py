"""A training that is no longer finite stops, and nothing of it is kept."""

import keras
import numpy as np
import pytest
from keras import ops

from cli import UserError
from training.callbacks import StopIfNotFinite


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


@pytest.mark.parametrize(
    ("function", "message"),
    [
        # The logarithm of the one input that is 0 is infinite.
        (lambda x: ops.log(ops.abs(x)), r"loss became .* in step 2 of epoch 1"),
        # The square root of 0 is finite, its derivative is not.
        (
            lambda x: ops.sqrt(ops.abs(x)),
            "the weight .*scale' became .* in the last step of epoch 1",
        ),
    ],
)
def test_the_step_and_the_epoch_are_named(function, message):
    inputs = keras.Input((1,))
    model = keras.Model(inputs, Apply(function, name="middle")(inputs))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    x = np.float32([[1], [1], [0], [1]])
    with pytest.raises(UserError, match=message):
        model.fit(
            x, np.ones((4, 1)), 2, epochs=2, shuffle=False, verbose=0,
            callbacks=[StopIfNotFinite()],
        )  # fmt: skip

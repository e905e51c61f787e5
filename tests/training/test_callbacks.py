"""Back-ups, early ends, and what stops a training that is no longer finite."""

import keras
import numpy as np
import pytest
from keras import ops

from cli import UserError
from tests.tolerance import assert_all_equal
from training.batches import Batches
from training.callbacks import BackUp, StopIfNotFinite, StopOnValidation
from training.images import Images

# ------------------------------------------------------------------- back-ups


class Stop(Exception):
    pass


def train(folder, epochs, stop_after=None):
    """Trains a small network with momentum; returns weights and epochs."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(keras.optimizers.Adam(0.1), "mse")
    x = np.arange(12.0).reshape(4, 3) / 12
    y = np.ones((4, 2))
    trained = []

    def note(epoch, logs):
        trained.append(epoch)
        if epoch == stop_after:
            raise Stop

    noting = keras.callbacks.LambdaCallback(on_epoch_end=note)
    model.fit(
        x, y, epochs=epochs, shuffle=False, verbose=0,
        callbacks=[BackUp(folder), noting],
    )  # fmt: skip
    return model.get_weights(), trained


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.slow
def test_a_training_goes_on_after_its_last_whole_epoch(tmp_path):
    whole, _ = train(tmp_path / "whole", 5)
    with pytest.raises(Stop):
        train(tmp_path / "cut", 5, stop_after=2)
    assert names(tmp_path / "cut") == ["epoch-3.weights.h5"]
    cut, trained = train(tmp_path / "cut", 5)
    assert trained == [3, 4]
    assert_all_equal(cut, whole)
    # Stopped while a back-up was written, before its weights were saved
    # elsewhere, or before an earlier one was deleted: nothing is repeated.
    (tmp_path / "cut" / ".epoch-11.weights.h5-x").write_bytes(b"half a file")
    (tmp_path / "cut" / "epoch-10.weights.h5").write_bytes(
        (tmp_path / "cut" / "epoch-5.weights.h5").read_bytes()
    )
    again, trained = train(tmp_path / "cut", 10)
    assert trained == []
    assert_all_equal(again, whole)


def test_a_back_up_that_cannot_be_read_is_named(tmp_path):
    train(tmp_path, 2)
    (tmp_path / "epoch-2.weights.h5").write_bytes(bytes(1000))
    with pytest.raises(
        UserError, match="epoch-2.weights.h5 cannot be read.*Re"
    ):
        train(tmp_path, 4)


# ----------------------------------------------------------------- early ends


class Losses(keras.callbacks.Callback):
    """Moves the only weight, and with it the loss, as told."""

    def __init__(self, losses):
        super().__init__()
        self.losses = losses

    def on_epoch_end(self, epoch, logs=None):
        self.model.layers[-1].kernel.assign([[self.losses[epoch]]])


def one_weight():
    inputs = keras.Input((1,))
    outputs = keras.layers.Dense(1, use_bias=False)(inputs)
    made = keras.Model(inputs, outputs)
    made.compile(keras.optimizers.SGD(0.0), "mae", jit_compile=False)
    return made


def stopped(folder, losses, patience, done=0):
    """Returns the losses of a training that goes on, and the best weight."""
    ones, zeros = np.ones((4, 1), "float32"), np.zeros(4, int)
    batches = Batches(Images(ones), zeros, 2)
    best = folder / "best.weights.h5"
    stop = StopOnValidation(batches, folder / "losses.json", patience, best)
    model = one_weight()
    fitted = model.fit(
        ones, zeros, epochs=stop.epochs(len(losses)), verbose=0,
        initial_epoch=done, callbacks=[Losses(losses), stop],
    )  # fmt: skip
    stop.restore(model)
    kernel = float(keras.ops.squeeze(model.layers[-1].kernel))
    return fitted.history.get("val_loss", []), kernel


_LOSSES = [3.0, 2.0, 2.5, 2.2, 2.0, 1.0]


@pytest.mark.slow
@pytest.mark.parametrize(("patience", "epochs"), [(3, 5), (4, 6)])
def test_it_stops_so_many_epochs_after_the_best(tmp_path, patience, epochs):
    losses, best = stopped(tmp_path, _LOSSES, patience)
    assert losses == pytest.approx(_LOSSES[:epochs])
    assert best == min(losses)
    assert names(tmp_path) == ["best.weights.h5", "losses.json"]


def test_a_resumed_training_stops_where_it_would_have_stopped(tmp_path):
    assert stopped(tmp_path, _LOSSES[:3], 3)[1] == 2.0
    losses, _ = stopped(tmp_path, _LOSSES, 3, done=2)
    assert losses == pytest.approx([2.5, 2.2, 2.0])
    # Stopped between its end and what comes after it: nothing is left to do.
    assert stopped(tmp_path, _LOSSES, 3, done=5) == ([], 2.0)


# --------------------------------------------------------------------- finite


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

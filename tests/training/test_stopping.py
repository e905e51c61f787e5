"""The end of a training by what the validation images say."""

import keras
import numpy as np
import pytest

from training.batches import Batches
from training.callbacks import StopOnValidation
from training.image_data import Images


class Losses(keras.callbacks.Callback):
    """Moves the only weight, and with it the loss, as told."""

    def __init__(self, losses):
        super().__init__()
        self.losses = losses

    def on_epoch_end(self, epoch, logs=None):
        self.model.layers[-1].kernel.assign([[self.losses[epoch]]])


def model():
    inputs = keras.Input((1,))
    outputs = keras.layers.Dense(1, use_bias=False)(inputs)
    made = keras.Model(inputs, outputs)
    made.compile(keras.optimizers.SGD(0.0), "mae", jit_compile=False)
    return made


def train(path, losses, initial_epoch=0, **settings):
    ones, zeros = np.ones((4, 1), "float32"), np.zeros(4, int)
    stop = StopOnValidation(Batches(Images(ones), zeros, 2), path, **settings)
    history = (
        model()
        .fit(
            ones,
            zeros,
            epochs=stop.epochs(len(losses)),
            initial_epoch=initial_epoch,
            verbose=0,
            callbacks=[Losses(losses), stop],
        )
        .history
    )
    return history.get("val_loss", [])


def test_it_stops_so_many_epochs_after_the_best(tmp_path):
    losses = [3.0, 2.0, 2.5, 2.2, 2.0, 1.0]
    seen = train(tmp_path / "losses.json", losses, patience=3)
    assert seen == pytest.approx([3.0, 2.0, 2.5, 2.2, 2.0])
    assert train(tmp_path / "others.json", losses, patience=4) == pytest.approx(
        losses
    )


def test_the_weights_of_the_lowest_loss_are_kept(tmp_path):
    losses = [3.0, 2.0, 2.5, 1.0, 2.2]
    best = tmp_path / "best.weights.h5"

    def kept():
        restored = model()
        path = tmp_path / "losses.json"
        stop = StopOnValidation(None, path, patience=9, best=best)
        stop.restore(restored)
        return float(keras.ops.squeeze(restored.layers[-1].kernel))

    train(tmp_path / "losses.json", losses[:3], patience=9, best=best)
    assert kept() == 2.0
    again = {"initial_epoch": 2, "patience": 9, "best": best}
    train(tmp_path / "losses.json", losses, **again)
    assert kept() == 1.0
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "best.weights.h5", "losses.json",
    ]  # fmt: skip


def test_a_resumed_training_stops_where_it_would_have_stopped(tmp_path):
    path = tmp_path / "losses.json"
    losses = [3.0, 2.0, 2.5, 2.2, 2.0, 1.0]
    train(path, losses[:3], patience=3)
    assert train(path, losses, patience=3, initial_epoch=2) == pytest.approx(
        [2.5, 2.2, 2.0]
    )
    # Stopped between its end and what comes after it: nothing is left to do.
    assert train(path, losses, patience=3, initial_epoch=5) == []

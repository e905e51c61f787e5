"""The end of a training by what the validation images say."""

import json

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
    made.compile(
        keras.optimizers.SGD(0.0),
        "mae",
        metrics=[keras.metrics.BinaryAccuracy("accuracy", threshold=1.0)],
        jit_compile=False,
    )
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


def test_losses_of_before_a_harder_loss_are_not_compared_with(tmp_path):
    losses = [0.5, 1.0, 3.0, 2.0, 2.5, 2.5, 2.5]
    easy = train(tmp_path / "easy.json", losses, patience=2)
    assert easy == pytest.approx(losses[:3])
    harder = {"patience": 2, "compare_from": 2}
    seen = train(tmp_path / "harder.json", losses, **harder)
    assert seen == pytest.approx(losses[:6])


def test_the_weights_of_the_lowest_loss_are_kept(tmp_path):
    losses = [3.0, 2.0, 2.5, 1.0, 2.2]
    best = tmp_path / "best.weights.h5"

    def kept():
        restored = model()
        stop = StopOnValidation(None, tmp_path / "losses.json", best=best)
        stop.restore(restored)
        return float(keras.ops.squeeze(restored.layers[-1].kernel))

    train(tmp_path / "losses.json", losses[:3], best=best)
    assert kept() == 2.0
    train(tmp_path / "losses.json", losses, initial_epoch=2, best=best)
    assert kept() == 1.0
    # Of another loss from there on, however low the ones before are.
    train(tmp_path / "others.json", losses, best=best, compare_from=4)
    assert kept() == pytest.approx(2.2)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "best.weights.h5", "losses.json", "others.json",
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


def test_it_stops_at_an_accuracy_once_pruning_has_ended(tmp_path):
    path = tmp_path / "measured.json"
    # As accuracies: 0, 1, 0, 1. The loss is the distance from 0.
    losses = [3.0, 0.25, 2.0, 0.125]
    stop = {"accuracy": 0.5}
    assert train(path, losses, **stop) == pytest.approx([3.0, 0.25])
    rows = json.loads(path.read_text())
    assert [row["accuracy"] for row in rows] == [0.0, 1.0]
    assert train(path, losses, initial_epoch=2, **stop) == []
    path.unlink()
    assert train(path, losses, not_before=3, **stop) == pytest.approx(losses)
    path.unlink()
    assert train(path, losses, accuracy=1.1) == pytest.approx(losses)

"""The back-up of a training, whenever it is stopped."""

import keras
import numpy as np
import pytest

from cli import UserError
from training import callbacks
from training.callbacks import BackUp


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

    model.fit(
        x,
        y,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=[
            BackUp(folder),
            keras.callbacks.LambdaCallback(on_epoch_end=note),
        ],
    )
    return model.get_weights(), trained


def assert_equal(mine, theirs):
    for left, right in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(left, right)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_training_goes_on_after_its_last_whole_epoch(tmp_path):
    whole, _ = train(tmp_path / "whole", 5)
    with pytest.raises(Stop):
        train(tmp_path / "cut", 5, stop_after=2)
    assert names(tmp_path / "cut") == ["epoch-3.weights.h5"]
    cut, trained = train(tmp_path / "cut", 5)
    assert trained == [3, 4]
    assert_equal(cut, whole)
    # Stopped before its weights were saved elsewhere: nothing is repeated.
    again, trained = train(tmp_path / "cut", 5)
    assert trained == []
    assert_equal(again, whole)


def test_long_trainings_are_not_kept_after_every_epoch(tmp_path, monkeypatch):
    assert callbacks._MOST == 100
    monkeypatch.setattr(callbacks, "_MOST", 5)
    whole, _ = train(tmp_path / "whole", 11)
    assert names(tmp_path / "whole") == ["epoch-11.weights.h5"]
    with pytest.raises(Stop):
        train(tmp_path / "cut", 11, stop_after=8)
    # Every second epoch.
    assert names(tmp_path / "cut") == ["epoch-8.weights.h5"]
    cut, trained = train(tmp_path / "cut", 11)
    assert trained == [8, 9, 10]
    assert_equal(cut, whole)


def test_a_back_up_that_was_being_written_does_not_count(tmp_path, monkeypatch):
    whole, _ = train(tmp_path / "whole", 4)
    save = keras.Model.save_weights

    def fail(self, path):
        if "epoch-3" in str(path):
            path.write_bytes(b"half a file")
            raise Stop
        save(self, path)

    monkeypatch.setattr(keras.Model, "save_weights", fail)
    with pytest.raises(Stop):
        train(tmp_path / "cut", 4)
    monkeypatch.undo()
    assert "epoch-2.weights.h5" in names(tmp_path / "cut")
    cut, trained = train(tmp_path / "cut", 4)
    assert trained == [2, 3]
    assert_equal(cut, whole)
    assert names(tmp_path / "cut") == ["epoch-4.weights.h5"]


def test_of_two_back_ups_the_later_counts(tmp_path):
    whole, _ = train(tmp_path / "cut", 12)
    first = tmp_path / "first"
    train(first, 2)
    # Stopped before the earlier one was deleted; 12 comes after 2.
    (first / "epoch-2.weights.h5").rename(tmp_path / "cut/epoch-2.weights.h5")
    cut, trained = train(tmp_path / "cut", 12)
    assert trained == []
    assert_equal(cut, whole)


def test_a_back_up_that_cannot_be_read_is_named(tmp_path):
    train(tmp_path, 2)
    (tmp_path / "epoch-2.weights.h5").write_bytes(bytes(1000))
    with pytest.raises(
        UserError, match="epoch-2.weights.h5 cannot be read.*Re"
    ):
        train(tmp_path, 4)

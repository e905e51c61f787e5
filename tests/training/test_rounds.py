"""Further rounds of a training, while the validation images gain by them."""

import keras
import numpy as np
import pytest

from tests.nightly import NIGHTLY
from tests.pictures import write_shapes
from tests.training.test_features import not_compiled
from tests.training.test_run import command, tiny_data
from training import (
    callbacks,
    configs,
    defaults,
    dense_head,
    plan,
    run,
    starting,
    train,
)
from training.batches import Batches
from training.datasets import Data
from training.folder import RunFolder
from training.image_data import Images, Split


class Measured:
    """Stands for a model whose validation is known."""

    def __init__(self, *values):
        self.values = list(values)

    def evaluate(self, batches, **kwargs):
        loss, accuracy = self.values.pop(0)
        return {"loss": loss, "accuracy": accuracy}


@pytest.mark.parametrize(
    ("most", "values", "expected"),
    [
        (1, [], 1),
        (3, [(0.3, 0.91)], 1),
        (3, [(0.3, 0.89), (0.1, 0.95)], 2),
        (3, [(0.3, 0.5), (0.2, 0.8), (0.1, 0.9)], 3),
        # The loss fell by less than 2 %, or rose.
        (3, [(0.300, 0.5), (0.295, 0.8)], 2),
        (3, [(0.3, 0.5), (0.4, 0.8)], 2),
        (4, [(0.3, 0.5), (0.2, 0.6), (0.21, 0.6)], 3),
    ],
)
def test_a_round_follows_while_the_loss_falls(most, values, expected, capsys):
    trained = []
    model = Measured(*values)
    validation = Batches(Images(np.zeros((4, 2, 2, 1))), np.zeros(4, int), 2)
    assert (
        train.further_rounds(model, validation, trained.append, most)
        == expected
    )
    assert trained == list(range(1, expected))
    assert capsys.readouterr().out.count("(--rounds)") == expected - 1


def test_without_validation_images_there_is_one_round():
    nothing = Batches(Images(np.zeros((0, 2, 2, 1))), np.zeros(0, int), 2)
    assert train.further_rounds(Measured(), nothing, pytest.fail, 3) == 1


def make_data():
    """Images that tell nothing of their labels, so no round is enough."""
    rng = np.random.default_rng(0)

    def part(count):
        images = rng.integers(0, 256, (count, 8, 8, 1), dtype=np.uint8)
        return Split(Images(images), np.arange(count) % 3)

    return Data("three", part(20), part(9), part(9), ("a", "b", "c"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "_GAIN", -1e9)
    config = configs.Config(epochs=2, rounds=3, batch_size=8, shift=1)
    folder = RunFolder(tmp_path / "run", config)
    folder.create()
    return folder


def note_epochs(monkeypatch):
    """Returns a list that gets each epoch that begins, and its rate."""
    begun = []

    class Note(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            begun.append((epoch, float(self.model.optimizer.learning_rate)))

    schedules_of = train.schedules_of
    monkeypatch.setattr(
        train, "schedules_of", lambda setup: [*schedules_of(setup), Note()]
    )
    return begun


@pytest.mark.slow
def test_a_training_that_is_stopped_in_a_round_goes_on(
    tmp_path, folder, monkeypatch, capsys
):
    data = make_data()
    on_epoch_end = callbacks.BackUp.on_epoch_end

    def stop(self, epoch, logs=None):
        on_epoch_end(self, epoch, logs)
        if epoch == 2:
            raise KeyboardInterrupt

    with not_compiled():
        with monkeypatch.context() as patch:
            patch.setattr(callbacks.BackUp, "on_epoch_end", stop)
            with pytest.raises(KeyboardInterrupt):
                train.train_model("baseline", data, folder, None)
        plan.show(data, folder, None)
        assert "Baseline: 1 more epochs of 3 steps" in capsys.readouterr().out
        begun = note_epochs(monkeypatch)
        resumed = train.train_model("baseline", data, folder, None)
        assert [epoch for epoch, _ in begun] == [3, 4, 5]
        rows = folder.read_metrics()
        assert [row["epoch"] for row in rows] == list(range(6))
        assert not list(folder.path.glob("backup*"))
        if not NIGHTLY:
            return
        whole = RunFolder(tmp_path / "whole", folder.config)
        whole.create()
        other = train.train_model("baseline", data, whole, None)
    for mine, theirs in zip(
        resumed.get_weights(), other.get_weights(), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


@pytest.mark.slow
def test_each_round_begins_with_the_whole_learning_rate(folder, monkeypatch):
    begun = note_epochs(monkeypatch)
    with not_compiled():
        train.train_model("baseline", make_data(), folder, None)
    epochs, rates = zip(*begun, strict=True)
    assert epochs == tuple(range(6))
    assert rates[0] == pytest.approx(folder.config.learning_rate)
    assert rates == pytest.approx([*rates[:2]] * 3)
    assert rates[1] < rates[0]


@pytest.mark.slow
def test_a_dense_head_is_trained_alike(folder, monkeypatch):
    trained = []
    fit_model = keras.Model.fit

    def note(self, *args, **kwargs):
        trained.append((kwargs["initial_epoch"], kwargs["epochs"]))
        return fit_model(self, *args, **kwargs)

    monkeypatch.setattr(keras.Model, "fit", note)
    with not_compiled():
        dense_head.accuracy(make_data(), folder)
    assert trained == [(0, 2), (2, 4), (4, 6)]


@pytest.mark.slow
def test_folders_get_rounds_unless_epochs_are_given(tmp_path, capsys):
    write_shapes(tmp_path / "shapes", {"bar": 4, "ring": 4}, seed=4)
    flags = ["--dataset", str(tmp_path / "shapes")]
    parser = run.make_parser()
    for more, expected in (
        ([], 3),
        (["--epochs", "7"], 1),
        (["--epochs", "7", "--rounds", "2"], 2),
    ):
        options = parser.parse_args([*flags, *more])
        assert starting.open_folder(options).config.rounds == expected
    assert defaults.load("mnist").rounds == 1
    data = tiny_data(tmp_path / "tiny.npz")
    assert command("--dataset", data, "--rounds", 2, "--dry-run") == 0
    assert "Training takes at least about" in capsys.readouterr().out

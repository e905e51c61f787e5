"""SpreadLoss and its growing margin."""

import keras
import numpy as np
import pytest

from tests import reference
from tests.backends import on_tensorflow
from tests.golden import load
from tests.gradients import value_and_gradients
from tests.tolerance import SUMS, assert_close
from tfcaps.losses import IncreaseMargin, SpreadLoss, spread_margin

GOLDEN = load("10_losses")


@pytest.mark.parametrize("targets", ["labels", "one_hot"])
@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("m0p20", SpreadLoss(0.2)),
        ("m0p55", SpreadLoss(0.55)),
        ("m0p90", SpreadLoss(0.9)),
        ("m0p2_rem", SpreadLoss()),
    ],
    ids=["0.2", "0.55", "0.9", "rem"],
)
def test_spread_loss_equals_the_public_implementation(name, loss, targets):
    value, (gradient,) = value_and_gradients(
        lambda lengths: loss(GOLDEN[targets], lengths), GOLDEN["activations"]
    )
    expected = GOLDEN[f"spread_{name}_loss_f64"]
    assert_close(value, expected)
    assert_close(gradient, GOLDEN[f"spread_{name}_grad"])


def test_spread_loss_equals_the_loops_with_any_number_of_classes(rng):
    activations = rng.uniform(size=(7, 4)).astype("float32")
    targets = rng.integers(2, size=(7, 4))
    losses = SpreadLoss(0.6, reduction=None)(targets, activations)
    expected = reference.spread_loss(targets, activations, 0.6)
    assert_close(losses, expected)


def test_margin_follows_the_published_schedule():
    steps = GOLDEN["spread_schedule_steps"]
    margins = [spread_margin(int(step)) for step in steps]
    assert_close(margins, GOLDEN["spread_schedule_margin_f64"])
    shorter = [spread_margin(step / 10, 5_000) for step in steps]
    assert_close(shorter, margins, atol=1e-9)


def train(model, loss, epochs=1):
    """Returns the margins of three batches an epoch, and the losses."""
    seen = []
    note = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(float(loss.margin))
    )
    callbacks = [IncreaseMargin(loss, steps=2), note]
    images, labels = np.ones((6, 4), "float32"), np.array([0, 1, 2] * 2)
    options = {"callbacks": callbacks, "verbose": 0, "shuffle": False}
    history = model.fit(images, labels, 2, epochs, **options)
    return seen, history.history["loss"]


def classifier(loss):
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(3, activation="sigmoid")]
    )
    model.compile(keras.optimizers.SGD(0.0), loss, jit_compile=False)
    return model


@on_tensorflow
def test_margin_grows_during_fit_and_after_resuming(tmp_path):
    loss = SpreadLoss()
    model = classifier(loss)
    seen, losses = train(model, loss, epochs=2)
    expected = [spread_margin(step, 2) for step in range(9)]
    assert_close(seen, expected[:6])
    # The compiled step reads the margin of the moment.
    assert losses[1] > losses[0]
    model.save(tmp_path / "model.keras")
    resumed = keras.models.load_model(tmp_path / "model.keras")
    assert float(resumed.loss.margin) == pytest.approx(expected[5], abs=1e-5)
    seen, _ = train(resumed, resumed.loss)
    assert_close(seen, expected[6:])


def test_evaluation_has_the_newest_margin():
    loss = SpreadLoss()
    model = classifier(loss)
    images, labels = np.ones((3, 4), "float32"), np.arange(3)
    values = []
    for margin in (0.2, 0.9):
        loss.margin.assign(margin)
        values.append(model.evaluate(images, labels, verbose=0))
        expected = SpreadLoss(margin)(labels, model(images))
        assert values[-1] == pytest.approx(float(expected), abs=SUMS)
    assert values[1] > values[0]


def test_schedule_is_refused_where_it_would_have_no_effect(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="no effect on the JAX backend"):
        IncreaseMargin(SpreadLoss()).on_train_begin()

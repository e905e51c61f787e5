"""The margin loss on the lengths of class capsules."""

import keras
import numpy as np
import pytest

from tests.backends import on_tensorflow
from tests.golden import load
from tests.gradients import value_and_gradients
from tests.tolerance import assert_close
from tfcaps.losses import HardenMargin, MarginLoss

GOLDEN = load("10_losses")


@pytest.mark.parametrize(
    ("name", "loss", "targets"),
    [
        ("mean", MarginLoss(), "one_hot"),
        ("mean", MarginLoss(), "labels"),
        ("sum", MarginLoss(reduction="sum"), "one_hot"),
        (
            "custom",
            MarginLoss(*GOLDEN["margin_custom_params_f64"].tolist()),
            "one_hot",
        ),
        ("multilabel", MarginLoss(), "multilabel_target"),
    ],
    ids=["mean", "sparse", "sum", "custom", "multilabel"],
)
def test_margin_loss_equals_the_public_implementation(name, loss, targets):
    value, (gradient,) = value_and_gradients(
        lambda lengths: loss(GOLDEN[targets], lengths), GOLDEN["activations"]
    )
    expected = GOLDEN[f"margin_{name}_loss_f64"]
    assert_close(value, expected)
    assert_close(gradient, GOLDEN[f"margin_{name}_grad"])


def test_samples_can_be_weighted():
    lengths = [[0.9, 0.1], [0.9, 0.1]]
    loss = MarginLoss(reduction="sum")
    weighted = loss([0, 1], lengths, sample_weight=[1.0, 0.25])
    assert float(weighted) == pytest.approx(0.25 * (0.8**2 + 0.5 * 0.8**2))


@pytest.mark.parametrize("compiled", [True, False])
def test_margins_are_hard_from_an_epoch_on(compiled):
    lengths, labels = np.array([[0.8, 0.3], [0.2, 0.6]]), np.array([0, 1])
    layer = keras.layers.Dense(2, kernel_initializer="identity")
    model = keras.Sequential([keras.Input((2,)), layer])
    harden = HardenMargin(MarginLoss(), epoch=2)
    model.compile(
        keras.optimizers.SGD(0.0),
        harden.loss,
        # JAX compiles only so.
        jit_compile=compiled and keras.backend.backend() == "jax",
        run_eagerly=not compiled,
    )

    def train(epochs, initial_epoch=0):
        options = {"epochs": epochs, "initial_epoch": initial_epoch}
        options.update(validation_data=(lengths, labels), callbacks=[harden])
        history = model.fit(lengths, labels, verbose=0, **options).history
        assert history["val_loss"] == pytest.approx(history["loss"])
        return history["loss"]

    easy = float(MarginLoss()(labels, lengths))
    hard = float(MarginLoss(0.95, 0.05, 0.8)(labels, lengths))
    assert hard > 1.5 * easy
    # First as a training that is resumed, then from its start.
    assert train(4, initial_epoch=3) == pytest.approx([hard])
    assert train(4) == pytest.approx([easy, easy, hard, hard])
    assert train(1) == pytest.approx([easy])


@on_tensorflow
def test_targets_of_unknown_width_are_taken_for_one_hot():
    lengths = np.array([[0.5, 0.2, 0.1]], "float32")
    targets = np.eye(3, dtype="float32")[:1]

    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None, None])])
    def loss(y_true):
        return MarginLoss()(y_true, lengths)

    np.testing.assert_allclose(loss(targets), MarginLoss()(targets, lengths))

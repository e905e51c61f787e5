"""Losses of class lengths, of images and of parts, and their errors."""

import keras
import numpy as np
import pytest

from tests.backends import on_tensorflow
from tests.golden import load
from tests.gradients import value_and_gradients
from tests.refusals import refused
from tests.tolerance import SUMS, assert_close
from tfcaps import losses, parts
from tfcaps.callbacks import IncreaseMargin
from tfcaps.losses import (
    CounterfactualLoss,
    CouplingLoss,
    MarginLoss,
    ReconstructionLoss,
    SpreadLoss,
)
from tfcaps.parts import (
    CellLoss,
    EvidenceLoss,
    PresenceLoss,
    constellation_losses,
)

GOLDEN = load("10_losses")
CUSTOM = GOLDEN["margin_custom_params_f64"].tolist()


@pytest.mark.parametrize(
    ("name", "loss", "targets"),
    [
        ("margin_mean", MarginLoss(), "one_hot"),
        ("margin_mean", MarginLoss(), "labels"),
        ("margin_sum", MarginLoss(reduction="sum"), "one_hot"),
        ("margin_custom", MarginLoss(*CUSTOM), "one_hot"),
        ("margin_multilabel", MarginLoss(), "multilabel_target"),
        ("spread_m0p2_rem", SpreadLoss(), "labels"),
        ("spread_m0p20", SpreadLoss(0.2), "one_hot"),
        ("spread_m0p55", SpreadLoss(0.55), "labels"),
        ("spread_m0p90", SpreadLoss(0.9), "one_hot"),
    ],
)
def test_loss_equals_the_public_implementation(name, loss, targets):
    value, (gradient,) = value_and_gradients(
        lambda lengths: loss(GOLDEN[targets], lengths), GOLDEN["activations"]
    )
    assert_close(value, GOLDEN[f"{name}_loss_f64"])
    assert_close(gradient, GOLDEN[f"{name}_grad"])


def test_spread_loss_of_any_number_of_classes_is_summed_over_them(rng):
    activations = rng.uniform(size=(7, 4)).astype("float32")
    present = rng.integers(2, size=(7, 4))
    lead = activations[:, :, None] - activations[:, None]
    pairs = present[:, :, None] * (1 - present[:, None])
    expected = np.sum(pairs * np.maximum(0.0, 0.6 - lead) ** 2, axis=(1, 2))
    losses = SpreadLoss(0.6, reduction=None)(present, activations)
    assert_close(losses, expected)


@pytest.mark.parametrize("dtype", ["int32", "float32", "bool"])
def test_one_class_is_there_where_its_label_is_1(dtype):
    there = np.array([1, 0]).astype(dtype)
    for labels in (there, there[:, None]):
        loss = MarginLoss(reduction=None)(labels, np.array([[0.9], [0.9]]))
        assert_close(loss, [0.0, 0.5 * 0.8**2])


@on_tensorflow
def test_targets_of_unknown_width_are_taken_for_one_hot():
    lengths = np.array([[0.5, 0.2, 0.1]], "float32")
    targets = np.eye(3, dtype="float32")[:1]

    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None, None])])
    def loss(y_true):
        return MarginLoss()(y_true, lengths)

    np.testing.assert_allclose(loss(targets), MarginLoss()(targets, lengths))


@pytest.mark.parametrize("loss", [CouplingLoss, CounterfactualLoss])
def test_of_soft_labels_the_largest_is_the_class(loss, rng):
    prediction = rng.random((6, 3, 3)).astype("float32")
    labels = np.array([0, 1, 2, 0, 1, 2])
    one_hot = np.eye(3, dtype="float32")[labels]
    expected = loss(reduction=None)(labels, prediction)
    for soft in (0.9 * one_hot + 1 / 30, one_hot.astype(bool), one_hot):
        assert_close(loss(reduction=None)(soft, prediction), expected)
    # Several classes, and none, stay what they are.
    rows = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 1]], "float32")
    several = loss(reduction=None)(rows, prediction[:3])
    assert float(several[1]) == 0.0
    assert_close(
        loss(reduction=None)(rows.astype(int), prediction[:3]), several
    )


def test_margin_follows_the_published_schedule(monkeypatch):
    steps = GOLDEN["spread_schedule_steps"]
    long, short = (IncreaseMargin(SpreadLoss(), n) for n in (50_000, 5_000))
    margins = [long.margin_at(step) for step in steps]
    assert_close(margins, GOLDEN["spread_schedule_margin_f64"])
    shorter = [short.margin_at(step / 10) for step in steps]
    assert_close(shorter, margins, atol=1e-9)
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="no effect on the JAX backend"):
        IncreaseMargin(SpreadLoss()).on_train_begin()


@on_tensorflow
def test_margin_grows_during_fit_and_after_resuming(tmp_path):
    layer = keras.layers.Dense(3, activation="sigmoid")
    model = keras.Sequential([keras.Input((4,)), layer])
    model.compile(keras.optimizers.SGD(0.0), SpreadLoss(), jit_compile=False)
    images, labels = np.ones((6, 4), "float32"), np.array([0, 1, 2] * 2)

    def train(model, epochs):
        """Returns the margins of three batches an epoch, and the losses."""
        seen, loss = [], model.loss
        note = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: seen.append(
                float(loss.margin)
            )
        )
        options = {"callbacks": [IncreaseMargin(loss, steps=2), note]}
        history = model.fit(images, labels, 2, epochs, verbose=0, **options)
        return seen, history.history["loss"]

    seen, losses = train(model, 2)
    expected = [IncreaseMargin(model.loss, 2).margin_at(n) for n in range(9)]
    assert_close(seen, expected[:6])
    # The compiled step reads the margin of the moment; so does evaluation.
    assert losses[1] > losses[0]
    value = model.evaluate(images, labels, verbose=0)
    wanted = SpreadLoss(expected[5])(labels, model(images))
    assert value == pytest.approx(float(wanted), abs=SUMS)
    model.save(tmp_path / "model.keras")
    resumed = keras.models.load_model(tmp_path / "model.keras")
    assert float(resumed.loss.margin) == pytest.approx(expected[5], abs=1e-5)
    assert_close(train(resumed, 1)[0], expected[6:])


@pytest.mark.parametrize("shape", [(4, 5, 2), (10,)], ids=str)
def test_reconstruction_loss_is_a_weighted_sum_over_pixels(shape, rng):
    images = rng.integers(2, size=(6, *shape)).astype("uint8")
    others = rng.random(size=(6, *shape)).astype("float32")
    squares = (images - others).reshape(6, -1) ** 2
    for given in (others, others.reshape(6, -1)):
        losses = ReconstructionLoss(0.3, reduction=None)(images, given)
        assert_close(losses, 0.3 * squares.sum(axis=1), atol=1e-5)
    # The published weight is that of a mean over 28x28 pixels.
    expected = 0.392 * np.mean(squares) * squares.shape[1] / 784
    assert float(ReconstructionLoss()(images, others)) == pytest.approx(
        expected
    )


def test_evidence_loss_is_cross_entropy_less_the_evidence(rng):
    evidence = rng.normal(size=(4, 3)).astype("float32")
    labels = np.array([0, 2, 1, 1])
    shares = np.exp(evidence) / np.exp(evidence).sum(axis=1, keepdims=True)
    one_hot = np.eye(3)[labels]
    loss = EvidenceLoss(0.3, reduction=None)
    for given, targets in ((labels, one_hot), *[(0.7 * one_hot + 0.1,) * 2]):
        expected = -np.sum(targets * (np.log(shares) + 0.3 * evidence), axis=1)
        np.testing.assert_allclose(loss(given, evidence), expected, rtol=1e-5)


def test_presence_loss_counts_parts_and_their_ambiguity(rng):
    presence = rng.dirichlet([1.0] * 3, size=(2, 3, 4)).astype("float32")
    types = presence[..., :-1]
    present = types.sum(axis=-1, keepdims=True)
    entropy = -np.sum(types * np.log(types / present), axis=(1, 2, 3))
    expected = 0.2 * present.sum(axis=(1, 2, 3)) + 0.3 * entropy
    loss = PresenceLoss(0.2, 0.3, reduction=None)
    np.testing.assert_allclose(loss(np.zeros(2), presence), expected, rtol=1e-3)
    losses = constellation_losses(0.1, 0.2, 0.3, 0.4)
    assert set(losses) == {"evidence", "presence", "reconstruction"}
    assert losses["evidence"].generative == 0.1
    assert losses["presence"].sparsity == 0.2
    assert losses["presence"].ambiguity == 0.3
    assert losses["reconstruction"].weight == 0.4


def test_cell_loss_is_of_the_places_that_are_known(rng):
    presence = rng.dirichlet([1.0] * 3, size=(2, 3, 4)).astype("float32")
    loss, rows = CellLoss(reduction=None), np.arange(2)[:, None, None]
    types = rng.integers(0, 3, (2, 3, 4))
    logs = np.log(np.take_along_axis(presence, types[..., None], -1))[..., 0]
    every = -logs.sum(axis=(1, 2))
    one_hot = np.eye(3, dtype="float32")[types]
    for told in (types, one_hot):
        np.testing.assert_allclose(loss(told, presence), every, rtol=1e-5)
    some = np.where(rows + np.arange(4) < 2, types, -1)  # of 6 and 3 places
    known = -(logs * (some >= 0)).sum(axis=(1, 2)) * [2, 4]
    for told in (some, one_hot * (some >= 0)[..., None]):
        np.testing.assert_allclose(loss(told, presence), known, rtol=1e-5)
    np.testing.assert_array_equal(loss(0 * types - 1, presence), 0.0)
    with pytest.raises(ValueError, match=r"Targets must be types \[b, h, w\]"):
        loss(types[0], presence)


test_wrong_calls_are_refused = refused(
    """
CounterfactualLoss(-1)
CounterfactualLoss(1.0, -2)
CouplingLoss(-1)
CouplingLoss(1.0, -2)
CouplingLoss(crowding=-3)
EvidenceLoss(-1.0)
PresenceLoss(-1.0)
ReconstructionLoss(-1)
    must not be negative. Received:
SpreadLoss(0.0)
    `margin` must be in (0, 1]. Received: margin=0.0.
SpreadLoss(1.1)
    `margin` must be in (0, 1]. Received: margin=1.1.
IncreaseMargin(SpreadLoss(), 0)
    `steps` must be positive. Received: steps=0.
MarginLoss()(zeros(2, 4), zeros(2, 3))
    indices [batch] or [batch, 1]. Received: targets (2, 4) for 3 classes.
MarginLoss()(zeros(2, 3, 1), zeros(2, 3))
MarginLoss()(zeros(), zeros(2, 3))
SpreadLoss()(zeros(2, 4), zeros(2, 3))
    Targets must be [batch, classes], or class indices [batch] or [batch, 1].
MarginLoss()(zeros(3), zeros(3))
MarginLoss()(zeros(3), zeros(2, 3, 3, 2))
SpreadLoss()(zeros(3), zeros(3))
SpreadLoss()(zeros(3), zeros(2, 3, 3, 2))
    Loss takes predictions [batch, classes]. Received: predictions of the shape
MarginLoss()(zeros(3), zeros(3, 3, 3))
SpreadLoss()(zeros(3, 3), zeros(3, 3, 3))
    add the layer `tfcaps.layers.Length()` to the model.
CouplingLoss()(zeros(3), zeros(3, 3))
    CouplingLoss takes predictions [batch, children, classes].
CounterfactualLoss()(zeros(3), zeros(3, 3))
    CounterfactualLoss takes predictions [batch, 3, classes].
SpreadLoss()(zeros(2), zeros(2, 1))
CounterfactualLoss(margin=0.5)(zeros(2), zeros(2, 3, 1))
    compares classes, of which there must be at least two. Received:
ReconstructionLoss()(zeros(2, 4, 4, 1), zeros(2, 4, 4, 3))
    must have as many values. Received: images (2, 4, 4, 1), reconstructions
""",
    **{**vars(parts), **vars(losses)},
    IncreaseMargin=IncreaseMargin,
    zeros=lambda *shape: np.zeros(shape, "float32"),
)

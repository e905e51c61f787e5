"""A network of parts trains itself on images and labels alone."""

import contextlib

import keras
import numpy as np
import pytest
from keras import ops

import tfcaps
from tests.backends import on_tensorflow
from tests.parts.test_network import fit, images_of, small
from tests.refusals import assert_refused
from tests.tolerance import assert_all_close, assert_all_equal
from tfcaps import rem
from tfcaps.callbacks import BlueprintEstimation

IMAGES, LABELS, _ = images_of(48)
ONE_HOT = np.eye(2, dtype="float32")[LABELS]


class Batches(keras.utils.PyDataset):
    """Batches of 16 images."""

    def __init__(self, *arrays):
        super().__init__()
        self.arrays = arrays

    def __getitem__(self, index):
        return tuple(a[16 * index : 16 * index + 16] for a in self.arrays)

    @property
    def num_batches(self):
        return 3


def generated(*arrays):
    while True:
        for index in range(3):
            yield Batches(*arrays)[index]


def of_tensorflow(*arrays):
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices(arrays).batch(16)


class Seen(keras.callbacks.Callback):
    """Keeps what blueprints are estimated from, and whether places are hard."""

    def on_epoch_end(self, epoch, logs=None):
        self.hard = float(self.model.get_layer("part_caps").hardness)


KINDS = {
    "arrays": ((IMAGES, LABELS), {"batch_size": 16}),
    "tf.data": ((of_tensorflow, IMAGES, ONE_HOT), {}),
    "one_hot": ((IMAGES[..., 0], ONE_HOT), {"validation_split": 0.25}),
    "class_weights": (
        ({"images": IMAGES}, LABELS[:, None]),
        {"class_weight": {0: 1.0, 1: 2.0}},
    ),
    "sample_weights": (
        (IMAGES, LABELS),
        {"sample_weight": np.linspace(0, 1, 48)},
    ),
    "PyDataset": ((Batches, IMAGES, LABELS, np.ones(48)), {}),
    "generator": ((generated, IMAGES, LABELS), {"steps_per_epoch": 3}),
}


@pytest.mark.parametrize(
    ("data", "more"),
    [
        pytest.param(*row, id=name, marks=[pytest.mark.slow] if k > 1 else [])
        for k, (name, row) in enumerate(KINDS.items())
    ],
)
def test_whatever_keras_trains_on(data, more, monkeypatch):
    if callable(data[0]):
        data = (data[0](*data[1:]),)
    model, taken, seen = small(), [], Seen()
    move = BlueprintEstimation._move
    monkeypatch.setattr(
        BlueprintEstimation,
        "_move",
        lambda self, found: (taken.append(found), move(self, found)),
    )
    model.get_layer("part_caps").nothing_conv.bias.assign([-8.0])
    model.compile(jit_compile=False, run_eagerly=True)
    logs = model.fit(
        *data,
        epochs=2,
        verbose=0,
        shuffle=False,
        callbacks=[seen],
        validation_data=None if "validation_split" in more else data,
        **({"validation_steps": 1} if "steps_per_epoch" in more else {}),
        **more,
    ).history
    assert np.isfinite(logs["loss"] + logs["val_loss"]).all()
    assert {"accuracy", "evidence_loss", "presence_loss"} <= set(logs)
    count = 36 if "validation_split" in more else 48
    [found] = taken
    if "steps_per_epoch" not in more:  # Keras reads ahead
        assert sorted(found.labels) == sorted(LABELS[:count])
    assert len(found.labels) >= count
    assert seen.hard == 1.0
    assert model.predict(IMAGES[:2], verbose=0).shape == (2, 2)


def test_its_loss_is_that_of_its_outputs_and_metrics_of_the_lengths():
    model = small()
    model.compile(run_eagerly=True)
    losses, outputs = model.loss, model.learner()(IMAGES)
    expected = [
        losses["evidence"](LABELS, outputs["evidence"]),
        losses["presence"](LABELS, outputs["presence"]),
        losses["reconstruction"](IMAGES, outputs["reconstruction"]),
        sum(model.losses),
    ]
    told = model.evaluate(IMAGES, LABELS, 48, verbose=0, return_dict=True)
    assert told["loss"] == pytest.approx(float(sum(expected)), rel=1e-4)
    right = model.predict(IMAGES, verbose=0).argmax(axis=-1) == LABELS
    assert told["accuracy"] == pytest.approx(right.mean())
    lengths = model(IMAGES)
    direct = model.compute_loss(IMAGES, LABELS, lengths, training=False)
    assert float(direct) == pytest.approx(told["loss"], rel=1e-4)
    assert model(IMAGES, training=True).shape == (48, 2)


def test_another_loss_trains_lengths_and_nothing_else():
    model, loss = small(), tfcaps.losses.MarginLoss()
    model.compile("sgd", loss, metrics=["accuracy"], run_eagerly=True)
    assert not model.learns_parts and model.decoder is None
    logs = model.fit(IMAGES, LABELS, verbose=0).history
    assert set(logs) == {"loss", "accuracy"}


def test_a_loaded_model_goes_on(tmp_path):
    model = small()
    fit(model, IMAGES, LABELS, 0.01, 2, run_eagerly=True)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is type(model) and loaded.is_trained
    assert_all_close(loaded.get_weights(), model.get_weights(), atol=0)
    step = ops.convert_to_numpy(loaded.optimizer.iterations)
    assert step == ops.convert_to_numpy(model.optimizer.iterations) > 0
    width = float(model.get_layer("class_caps").log_width)
    loaded.fit(IMAGES, LABELS, verbose=0)
    layer = loaded.get_layer("class_caps")
    assert float(layer.log_width) == pytest.approx(width)
    assert loaded.is_trained  # it stayed hard
    plain = keras.models.load_model(tmp_path / "model.keras", compile=False)
    assert_all_equal(plain.get_weights(), model.get_weights())


@pytest.mark.slow
def test_what_was_never_trained_is_saved_and_loaded(tmp_path):
    model = small()
    for each in (model, rem.compact(model)):
        assert_all_equal(each.get_weights(), model.get_weights())
        each.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        assert_all_equal(loaded.get_weights(), model.get_weights())
        loaded.compile(run_eagerly=True)
        loaded.fit(IMAGES[:8], LABELS[:8], verbose=0)
    with pytest.raises(ValueError, match="saved whole as a `.keras` file"):
        model.save(tmp_path / "model.h5")


def test_copies_keep_what_is_trained():
    model = small()
    model.compile(run_eagerly=True)
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    assert copy.learns_parts and copy.optimizer is not model.optimizer
    assert float(copy.evaluate(IMAGES, LABELS, verbose=0)[0]) == pytest.approx(
        float(model.evaluate(IMAGES, LABELS, verbose=0)[0]), rel=1e-4
    )
    for other in (rem.classifier(model), rem.add_couplings(model)):
        assert type(other) is type(keras.Model(model.input, model.output))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ((IMAGES,), "is trained on images and their labels"),
        ((IMAGES, LABELS[:5]), "one label for each image"),
        ((IMAGES, LABELS + 1), "class indices below 2"),
        ((IMAGES, LABELS + 0.5), "must be whole numbers"),
        ((IMAGES, np.where(LABELS, np.nan, 0.0)), "Labels must be finite"),
        ((IMAGES, np.array(["a", "b"])[LABELS]), "`np.unique(labels"),
        ((IMAGES[:, 1:], LABELS), "must have the shape (16, 16, 1)"),
        ((IMAGES * 255, LABELS), "between 0 and 1"),
        ((IMAGES * np.nan, LABELS), "Images must be finite"),
        (((x for x in [(IMAGES,)]),), "is trained on images and their labels"),
    ],
)
def test_what_does_not_fit_is_refused(data, said):
    model = small()
    model.compile(run_eagerly=True)
    assert_refused(lambda: model.fit(*data, verbose=0, shuffle=False), said)


def step(scope):
    """Returns a model, and how a step of rate 1 has changed its weights."""
    keras.utils.set_random_seed(0)
    with scope:
        model = small()
        # Its statistics would be those of a replica's part of the batch.
        model.get_layer("norm1").trainable = False
        model.compile(keras.optimizers.SGD(1.0), jit_compile=False)
    before = weights(model)
    model.fit(IMAGES, LABELS, batch_size=48, shuffle=False, verbose=0)
    pairs = zip(weights(model), before, strict=True)
    return model, before, [new - old for new, old in pairs]


def weights(model):
    return [ops.convert_to_numpy(w).copy() for w in model.trainable_weights]


@pytest.mark.slow
def test_a_step_goes_down_the_gradient_of_its_loss():
    """Measured by differences, so on every backend."""
    model, before, change = step(contextlib.nullcontext())
    square = sum(float(np.sum(x**2)) for x in change)
    losses = []
    for share in (-1.0, 1.0):
        near = 2e-3 * share / np.sqrt(square)
        for weight, old, x in zip(
            model.trainable_weights, before, change, strict=True
        ):
            weight.assign(old + near * x)
        loss = model.compute_loss(IMAGES, LABELS, None, training=True)
        losses.append(float(loss))
    slope = (losses[1] - losses[0]) / 4e-3
    assert slope == pytest.approx(-np.sqrt(square), rel=0.02)


@pytest.mark.slow
@on_tensorflow
def test_two_replicas_take_the_step_of_one(two_replicas):
    assert two_replicas.num_replicas_in_sync == 2
    _, _, one = step(contextlib.nullcontext())
    model, _, two = step(two_replicas.scope())
    assert_all_close(two, one, atol=1e-5)
    assert max(np.abs(x).max() for x in one) > 1e-2
    model.fit(IMAGES, LABELS, epochs=3, batch_size=16, verbose=0)  # estimates

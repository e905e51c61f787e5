"""Standardisation inside the network, and the strategies of `--pruning`."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow  # noqa: F401 (on JAX conftest.py leaves this file out)

import tfcaps
from cli import UserError
from tests.exports import with_dead_units
from tests.networks import tiny_capsnet
from tests.small_data import noise
from tests.tolerance import SUMS, assert_close
from tfcaps import rem
from tfcaps.rem.pruning.prune import update_steps
from training import configs, networks, objectives, pruning, starting
from training.augmentation import Augmentation
from training.batches import Batches
from training.images import Images, Split

_MEAN, _STD = (0.2, 0.4, 0.6), (0.5, 0.25, 0.1)


@pytest.fixture
def data():
    return noise(48)


def built(mean=(), std=(), **settings):
    keras.utils.set_random_seed(0)
    return networks.build(
        "dr_capsnet_small", (12, 12, 3), 4, mean=mean, std=std, **settings
    )


def test_the_network_standardises_its_images(rng, tmp_path):
    images = rng.random((5, 12, 12, 3), dtype=np.float32)
    plain, model = built(), with_dead_units(built(_MEAN, _STD), rng)
    plain.set_weights(model.get_weights())
    wanted = plain((images - _MEAN) / _STD)
    decoded = built(_MEAN, _STD, decoder=True)
    rem.classifier(decoded).set_weights(model.get_weights())
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for same in (model, rem.classifier(decoded), loaded, rem.compact(model)):
        np.testing.assert_allclose(same(images), wanted, atol=1e-5)
    # One number stands for all channels.
    wanted = built()((images - 0.3) / 0.5)
    assert_close(built((0.3,), (0.5,))(images), wanted, atol=1e-5)


def test_statistics_are_measured_on_the_training_images(data):
    config = configs.Config(measured=True)
    model = networks.build_for(data, config, decoder=False)
    layer = model.get_layer("standardize")
    standardized = np.asarray(layer(data.train.images[:]))
    assert standardized.mean() == pytest.approx(0, abs=1e-5)
    assert standardized.std() == pytest.approx(1, abs=1e-5)


def pruned(data, config, batches, epochs):
    """Returns a small network that was trained, and its sparsity at first."""
    model, first = tiny_capsnet(), []
    model.compile("adam", tfcaps.losses.MarginLoss(), jit_compile=False)
    prune = pruning.callback(config, data, batches)
    note = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: first.append(rem.sparsity(model))
    )
    callbacks = [note] if prune is None else [prune, note]
    model.fit(batches, epochs=epochs, verbose=0, callbacks=callbacks)
    return model, first[0]


@pytest.mark.parametrize(
    ("strategy", "reached"),
    [
        ("polynomial", 0.6),
        pytest.param("one_shot", 0.6, marks=pytest.mark.slow),
        pytest.param("snip", 0.6, marks=pytest.mark.slow),
        ("structured", None),
        pytest.param("iterative", None, marks=pytest.mark.slow),
        pytest.param("none", 0.0, marks=pytest.mark.slow),
    ],
)
def test_each_strategy_prunes_what_it_should(data, strategy, reached):
    assert set(configs.STRATEGIES) == {
        "polynomial", "one_shot", "snip", "structured", "iterative", "none",
    }  # fmt: skip
    config = configs.Config(
        pruning=strategy, final_sparsity=0.6, epochs=4, batch_size=16
    )
    model, first = pruned(data, config, Batches(*data.train, 16), 4)
    assert (first > 0.5) == (strategy == "snip")
    sparsity = rem.sparsity(model)
    if strategy == "structured":
        left = rem.multiply_adds(rem.compact(model)).total
        assert 0.2 < left / rem.multiply_adds(model).total <= 0.4
    elif reached is None:
        assert 0.1 < sparsity <= 0.61
    else:
        assert sparsity == pytest.approx(reached, abs=0.01)


def test_snip_sees_images_of_the_size_that_the_network_takes(data):
    config = configs.Config(pruning="snip", final_sparsity=0.6, crop=8)
    images, labels = data.train
    margins = [(0, 0), (2, 2), (2, 2), (0, 0)]
    wide = Images(np.pad(images.pixels, margins))
    batches = Batches(wide, labels, 16, augment=Augmentation(crop=8))
    whole = dataclasses.replace(data, train=Split(wide, labels))
    model, _ = pruned(whole, config, batches, 1)
    assert rem.sparsity(model) == pytest.approx(0.6, abs=0.01)


@pytest.mark.parametrize(
    ("what", "settings"),
    [
        ("--pruning iterative", {"rem": True, "pruning": "iterative"}),
        ("--recipe paper", {"patience": 2}),
        ("--levels lowest", {"levels": "lowest"}),
    ],
)
def test_what_chooses_needs_validation_images(data, what, settings):
    nothing = data.train.take(slice(0))
    without = dataclasses.replace(data, validation=nothing)
    with pytest.raises(UserError, match=f"{what} needs validation images"):
        starting.check_fit(without, configs.Config(**settings))


def test_rates_fall_by_a_factor_where_one_is_given():
    config = configs.Config(
        learning_rate=1e-3, learning_rate_decay=0.5, decay=0.1, decay_factor=0.9
    )
    rates = objectives.learning_rate(config, 10)
    found = [float(rates(step)) for step in (0, 9, 10, 25)]
    assert found == pytest.approx([1e-3, 1e-3, 5e-4, 2.5e-4])
    assert float(objectives.decay_rate(config, 10)(20)) == pytest.approx(0.081)


@pytest.mark.parametrize(
    ("name", "margin"), [("em_capsnet", 0.2), ("dr_capsnet_small", None)]
)
def test_trees_are_judged_as_the_network_is_trained(name, margin):
    network = networks.build(name, (16, 16, 1), 3)
    training = rem.add_couplings(network, counterfactual=True)
    config = configs.Config(model=name, counterfactual_necessity=1.0)
    losses = objectives.losses(training, config)
    assert losses["counterfactual"].margin == margin


@pytest.mark.parametrize("steps", [1, 29, 504, 360])
def test_the_schedule_is_that_of_tfmot(steps):
    tfmot = pytest.importorskip("tensorflow_model_optimization")
    ours, span = rem.Prune(0.8), update_steps(0.0, 0.6, steps)
    ours._steps, ours._before, ours._epoch, ours._is_late = span, 0, None, True
    theirs = tfmot.sparsity.keras.PolynomialDecay(
        0.0, 0.8, span[0], span[-1], frequency=span.step
    )
    updates = []
    for step in range(1, steps + 1):
        is_time, sparsity = theirs(step)
        assert ours(step)[0] == bool(is_time)
        if is_time:
            updates.append(float(sparsity))
            assert ours(step)[1] == pytest.approx(updates[-1], abs=SUMS)
    assert updates[-1] == pytest.approx(0.8, abs=SUMS)
    assert len(updates) <= 201

"""Pruning in a loop of one's own, and pruning that something else undoes."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfcaps
from tests.compaction import fit
from tests.networks import tiny_capsnet
from tfcaps import rem


def compiled(optimizer="adam"):
    model = tiny_capsnet(filters=6)
    model.compile(optimizer, tfcaps.losses.MarginLoss())
    return model


def averaging():
    return keras.optimizers.Adam(use_ema=True, ema_momentum=0.9)


def restoring(model):
    # Stopped after the second epoch, with the weights of the first.
    stop = keras.callbacks.EarlyStopping
    return [stop("sparsity", mode="min", restore_best_weights=True)]


def setting(model):
    before = model.get_weights()
    undo = keras.callbacks.LambdaCallback
    return [undo(on_train_end=lambda logs: model.set_weights(before))]


# Callbacks, the optimiser, and how sparse the network is at least.
UNDOING = {
    "EarlyStopping": (restoring, keras.optimizers.Adam, 0.5),
    "use_ema": (lambda model: [], averaging, 0.79),
    "SwapEMAWeights": (
        lambda model: [keras.callbacks.SwapEMAWeights(swap_on_epoch=True)],
        averaging,
        0.79,
    ),
    "set_weights": (setting, keras.optimizers.Adam, 0.79),
    "SNIP with averages": (lambda model: [], averaging, 0.79),
}


@pytest.mark.parametrize("name", UNDOING)
def test_pruned_weights_are_pruned_once_more_and_it_is_said(
    name, images, tmp_path
):
    callbacks, make_optimizer, least = UNDOING[name]
    model = compiled(make_optimizer())
    if name.startswith("SNIP"):
        rem.prune_single_shot(model, [images], 0.8)
    else:
        rem.prune_low_magnitude(model, lambda step: min(0.1 * step, 0.8))
    with pytest.warns(UserWarning, match=r"of the \d.* pruned weights.*% were"):
        fit(model, images, callbacks(model), epochs=4)
        rem.strip_pruning(model)
    assert rem.sparsity(model) >= least
    model.save(tmp_path / "stripped.keras")
    loaded = keras.models.load_model(tmp_path / "stripped.keras")
    assert rem.sparsity(loaded) == rem.sparsity(model)


USES = {
    "sparsity": rem.sparsity,
    "encoder": rem.encoder,
    "compact": rem.compact,
    "quantize_couplings": lambda model: rem.quantize_couplings(model, 11),
    "capsule_outputs": rem.capsule_outputs,
}


@pytest.mark.parametrize("name", USES)
def test_masks_act_where_weights_are_used(name):
    model = compiled()
    before = model.get_weights()
    rem.prune_low_magnitude(model, lambda step: 0.8)
    model.pruning.begin_step(model, 1)
    sparsity = model.pruning.sparsity()
    model.set_weights(before)
    assert model.pruning.sparsity() < 0.01  # that of the weights
    # A model that shares the layers is pruned with it.
    shared = keras.Model(model.input, model.output)
    with pytest.warns(UserWarning, match="so that 0.0% were pruned and not 8"):
        USES[name](shared)
    assert model.pruning.sparsity() == sparsity > 0.79
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        USES[name](shared)


def test_the_logs_tell_the_sparsity_of_the_weights(images):
    model = compiled()
    rem.prune_low_magnitude(model, lambda step: 0.8)
    before = model.get_weights()
    undo = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: model.set_weights(before)
    )
    history = model.fit(
        *images, verbose=0, callbacks=[undo, rem.UpdatePruningStep()]
    ).history
    assert history["sparsity"][0] < 0.01


UNUSED = -1


def step(model, optimizer, images):
    loss = tfcaps.losses.MarginLoss()
    with tf.GradientTape() as tape:
        value = loss(images[1][:4], model(images[0][:4], training=True))
    gradients = tape.gradient(value, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)


def schedule(step):
    return min(0.2 * (step - 1), 0.8)


@pytest.mark.parametrize("kind", ["set", "compiled", "another", "numbered"])
def test_the_published_order_prunes_step_by_step(kind, images):
    model = tiny_capsnet()
    optimizer = keras.optimizers.Adam()
    if kind != "set":
        model.compile(optimizer)
    rem.prune_low_magnitude(model, schedule)
    if kind == "set":
        model.optimizer = optimizer
    if kind == "another":  # does the steps; Keras applies constraints anyway
        optimizer = keras.optimizers.Adam()
    update = rem.UpdatePruningStep()
    update.set_model(model)
    update.on_train_begin()
    found = []
    for epoch in range(2):
        if kind == "numbered":
            update.on_epoch_begin(epoch)
        for batch in range(3):
            numbered = batch if kind == "numbered" else UNUSED
            update.on_train_batch_begin(batch=numbered)
            step(model, optimizer, images)
            found.append(rem.sparsity(model))
        update.on_epoch_end(batch=UNUSED)
    expected = [schedule(number) for number in range(1, 7)]
    np.testing.assert_allclose(found, expected, atol=0.01)
    assert rem.sparsity(rem.strip_pruning(model)) == pytest.approx(
        0.8, abs=0.01
    )


def test_what_is_missing_is_one_sentence(images):
    update = rem.UpdatePruningStep()
    with pytest.raises(ValueError, match=r"Call `set_model\(model\)` before"):
        update.on_train_begin()
    model = tiny_capsnet()
    update.set_model(model)
    with pytest.raises(ValueError, match="is not being pruned. Call"):
        update.on_train_begin()
    rem.prune_low_magnitude(model, schedule)
    with pytest.raises(ValueError, match="no optimiser.*set `model.optimizer`"):
        update.on_train_begin()

"""Pruning in a training loop of one's own, as tfmot's guide writes it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfcaps
from tests.networks import tiny_capsnet
from tfcaps import rem

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

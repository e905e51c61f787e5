"""SNIP: saliencies, masks, and that pruning once lasts."""

import keras
import numpy as np
import pytest

import tfcaps
from tests.compaction import compiled, fit
from tests.networks import tiny_capsnet
from tests.tolerance import assert_all_equal
from tfcaps import rem
from tfcaps.rem.pruning.masks import saliency_masks
from tfcaps.rem.pruning.single_shot import _saliencies
from training.devices import dtype_policy


def batches(images, labels, size=8):
    starts = range(0, len(labels), size)
    return [(images[k : k + size], labels[k : k + size]) for k in starts]


def test_the_most_salient_weights_of_all_survive():
    # loss = mean (w . x - y)^2 with one input, so dL/dw_k = 2 x_k (w . x - y)
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(1, use_bias=False)]
    )
    kernel = model.layers[0].kernel
    kernel.assign(np.float32([[0.1], [-2.0], [0.4], [1.0]]))
    compiled(model, keras.optimizers.SGD(0.1), "mse")
    # |w x (w . x - y)| is 0.5, 0.2, 0.4, 0.0, then 0.0, 0.0, 0.04, 4.0: of
    # either batch alone others would survive than of their sum.
    first = np.float32([[5.0, 0.1, 1.0, 0.0]]), np.float32([[1.7]])
    second = np.float32([[0.0, 0.0, 0.01, -0.4]]), np.float32([[-10.396]])
    rem.prune_single_shot(model, [first, second], 0.5)
    np.testing.assert_array_equal(
        kernel.numpy(), np.float32([[0.1], [0.0], [0.0], [1.0]])
    )


@pytest.mark.slow
def test_the_weights_of_the_losses_count(images):
    expected = {"lengths": 3.0, "couplings": 0.5}
    totals = []
    for weights in ({"lengths": 0.0, "couplings": 0.5}, expected):
        keras.utils.set_random_seed(0)
        model = rem.add_couplings(tiny_capsnet())
        model.compile(
            "adam",
            loss={
                "lengths": tfcaps.losses.MarginLoss(),
                "couplings": tfcaps.losses.CouplingLoss(),
            },
            loss_weights=weights,
            jit_compile=False,
        )
        labels = {"lengths": images[1], "couplings": images[1]}
        kernel = [v for v in model.trainable_variables if v.name == "kernel"]
        (saliency, *_) = _saliencies(model, [(images[0], labels)], kernel)
        totals.append(saliency.sum())
    assert totals[1] > 2 * totals[0] > 0


@pytest.mark.slow
def test_masks_stay_for_the_whole_training(images):
    model = compiled(tiny_capsnet())
    rem.prune_single_shot(model, batches(*images), 0.75)
    zeros = [array.numpy() == 0 for array in model.pruning.variables]
    assert rem.sparsity(model) == pytest.approx(0.75, abs=0.01)
    history = fit(model, images, epochs=3)
    assert history["sparsity"] == [pytest.approx(0.75, abs=0.01)] * 3
    for array, zero in zip(model.pruning.variables, zeros, strict=True):
        np.testing.assert_array_equal(array.numpy() == 0, zero)
    rem.strip_pruning(model)
    assert rem.sparsity(model) == pytest.approx(0.75, abs=0.01)


def test_moving_averages_are_left_as_they_were(images):
    inputs = keras.Input((8, 8, 1))
    features = keras.layers.Conv2D(4, 3)(inputs)
    features = keras.layers.BatchNormalization()(features)
    outputs = keras.layers.Dense(3)(keras.layers.Flatten()(features))
    model = compiled(keras.Model(inputs, outputs))
    before = [w.copy() for w in model.get_weights()]
    rem.prune_single_shot(model, batches(*images), 0.0)
    assert_all_equal(model.get_weights(), before)


def test_every_tensor_keeps_a_weight_and_equal_ones_keep_the_sparsity():
    saliencies = [np.arange(1.0, 9.0), np.array([[0.0, 0.2], [0.1, 0.0]])]
    masks = saliency_masks(saliencies, 0.75)
    np.testing.assert_array_equal(masks[0], np.arange(8) >= 5)
    np.testing.assert_array_equal(masks[1], [[False, True], [False, False]])
    assert saliency_masks([np.zeros((4, 5))], 0.75)[0].sum() == 5


def test_wrong_arguments_are_errors(images):
    model = compiled(tiny_capsnet())
    dead = compiled(tiny_capsnet())
    for variable in dead.trainable_variables:
        variable.assign(np.zeros(variable.shape))
    data = batches(*images)
    for network, given, sparsity, message in (
        (model, data, 1.0, r"in \[0, 1\). Received: sparsity=1"),
        (model, [], 0.5, "at least one batch"),
        (tiny_capsnet(), data, 0.5, "Compile the model"),
        (dead, data, 0.5, "their sum is 0.0"),
    ):
        with pytest.raises(ValueError, match=message):
            rem.prune_single_shot(network, given, sparsity)


@pytest.mark.slow
def test_loss_scaling_leaves_no_batch_out_and_masks_hold(images):
    with dtype_policy("mixed_float16"):
        model = tiny_capsnet()
        model.compile("adam", tfcaps.losses.MarginLoss(), loss_weights=1e3)
        rem.prune_single_shot(model, batches(*images), 0.5)
    fit(model, images)
    assert rem.sparsity(model) == pytest.approx(0.5, abs=0.02)

"""Compacted networks: the same outputs with fewer weights."""

import keras
import numpy as np
import pytest
from keras import layers

from tests.compaction import (
    assert_same,
    compacted,
    fill,
    filters,
    randomized,
    silence,
)
from tests.networks import (
    SMALL_NETWORKS,
    every_network,
    images_of,
    tiny_capsnet,
)
from tfcaps import rem
from tfcaps.layers import ClassCaps, PrimaryCaps
from tfcaps.rem.pruning.masks import target_variables
from training.devices import dtype_policy


@every_network
def test_nothing_pruned_is_nothing_removed(name):
    model = SMALL_NETWORKS[name]()
    assert rem.compact(model).count_params() == model.count_params()


@pytest.mark.parametrize(
    "name", ["dr_capsnet", "em_capsnet", "gamma_capsnet", "multilayer_capsnet"]
)
def test_everything_pruned_is_still_a_network(name, rng):
    model = randomized(SMALL_NETWORKS[name](), rng)
    for weight in target_variables(model.variables):
        weight.assign(np.zeros(weight.shape))
    compact = compacted(model)
    assert all(0 not in weight.shape for weight in compact.weights)


def test_decoder_and_labels_stay(rng):
    model = randomized(tiny_capsnet(decoder=True), rng)
    fill(model.get_layer("class_caps").transformation, np.s_[1::2])
    compact = rem.compact(model)
    assert compact.count_params() < model.count_params()
    inputs = {
        "images": images_of(model, 4),
        "labels": np.array([2, 0, 1, 1], "int32"),
    }
    for training in (False, True):
        expected = model(inputs, training=training)
        outputs = compact(inputs, training=training)
        assert_same(outputs, expected)


def test_sequential_model(rng):
    model = keras.Sequential(
        [
            keras.Input((7, 7, 2)),
            layers.Conv2D(4, 3, activation="relu", name="first"),
            PrimaryCaps(2, 4, 3, name="primary"),
            ClassCaps(3, 4, name="class"),
        ],
        name="stack",
    )
    fill(model.get_layer("primary").conv.kernel, np.s_[:, :, 2])
    fill(model.get_layer("class").transformation, np.s_[1::2])
    compact = compacted(randomized(model, rng))
    assert compact.name == "stack"
    assert filters(compact) == 3
    assert compact.get_layer("primary").num_types == 1


def test_half_precision(rng):
    with dtype_policy("mixed_float16"):
        model = randomized(tiny_capsnet(), rng)
    silence(model.get_layer("conv"), 1, bias=0.7)  # which would be rounded
    silence(model.get_layer("conv"), 2, bias=-0.7)
    fill(model.get_layer("class_caps").transformation, np.s_[1::2])
    compact = compacted(model, atol=1e-3)
    assert filters(compact, "conv") == 3
    layer = compact.get_layer("class_caps")
    assert layer.compute_dtype == "float16"
    assert layer.transformation.shape[0] == 4

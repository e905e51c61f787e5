"""Weights that are drawn at random start differently."""

import keras
import numpy as np
import pytest

from tfcaps import models
from tfcaps.layers import PrimaryMatrixCaps
from tfcaps.routing import EMRouting


def em_weights(name):
    model = models.em_capsnet(
        (16, 16, 1),
        4,
        primary_types=4,
        conv_types=(4, 4),
        routing=EMRouting(beta_a_initializer="random_normal"),
    )
    layers = ("conv_caps1", "conv_caps2", "class_caps")
    return [getattr(model.get_layer(layer), name) for layer in layers]


def matrix_kernels():
    layer = PrimaryMatrixCaps(4)
    layer.build((None, 6, 6, 8))
    return [layer.pose_conv.kernel, layer.activation_conv.kernel]


def deepcaps_weights():
    model = models.deepcaps((8, 8, 1), 3, variant="rem", class_dim=4)
    layer = model.get_layer("class_caps")
    return [layer.transformation, layer.bias]


@pytest.mark.parametrize(
    "make",
    [
        lambda: em_weights("transformation"),
        lambda: em_weights("beta_a"),
        matrix_kernels,
        deepcaps_weights,
    ],
    ids=["em", "beta_a", "primary_matrix_caps", "deepcaps"],
)
def test_no_weights_are_the_same_numbers(make):
    weights = [keras.ops.convert_to_numpy(w).ravel() for w in make()]
    for number, first in enumerate(weights):
        for second in weights[number + 1 :]:
            common = min(len(first), len(second))
            likeness = np.corrcoef(first[:common], second[:common])[0, 1]
            assert abs(likeness) < 0.99


def test_a_seed_is_kept():
    initializer = keras.initializers.RandomNormal(seed=7)
    kernels = []
    for _ in range(2):
        layer = PrimaryMatrixCaps(2, kernel_initializer=initializer)
        layer.build((None, 6, 6, 8))
        kernels.append(keras.ops.convert_to_numpy(layer.pose_conv.kernel))
    np.testing.assert_array_equal(*kernels)

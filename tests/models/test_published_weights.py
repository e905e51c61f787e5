"""Efficient-CapsNet with its published weights gives its published numbers."""

import keras
import numpy as np
import pytest

from tests.golden import load
from tests.tolerance import assert_close
from tfcaps import rem
from tfcaps.layers import Decoder
from tfcaps.models import efficient_capsnet

IO = load("05_efficient_capsnet_smallnorb_io")


@pytest.fixture(scope="module")
def model():
    """Returns the network with all published weights, layer by layer."""
    encoder = load("05_efficient_capsnet_smallnorb_weights")
    generator = load("05_efficient_capsnet_smallnorb_generator_weights")
    model = efficient_capsnet((48, 48, 2), 5, variant="smallnorb", decoder=True)
    weights = {
        "primary_caps": [
            encoder["primary_kernel"][..., None],
            encoder["primary_bias"],
        ],
        "class_caps": [encoder["fccaps_weights"], encoder["fccaps_bias"]],
        "reconstruction": list(generator.values()),
    }
    for number in range(1, 5):
        for layer, parts in (
            ("conv", ("kernel", "bias")),
            ("norm", ("gamma", "beta")),
        ):
            name = f"{layer}{number}"
            weights[name] = [encoder[f"{name}_{part}"] for part in parts]
    for name, values in weights.items():
        model.get_layer(name).set_weights(values)
    loaded = sum(value.size for v in weights.values() for value in v)
    assert loaded == model.count_params() == 151_664 + 229_570
    return model


@pytest.fixture(scope="module")
def outputs(model):
    layers = {
        name: model.get_layer(name).output
        for name in ("norm1", "norm4", "primary_caps", "class_caps")
    }
    shown = keras.Model(model.input["images"], layers)(IO["images"])
    return {**shown, **model({"images": IO["images"], "labels": None})}


def test_layers_give_the_published_numbers(model, outputs):
    means = np.mean(outputs["norm1"], axis=(1, 2))
    assert_close(means, IO["block1_mean_per_channel"], atol=1e-5)
    assert_close(outputs["norm4"][:1], IO["block4"], atol=1e-4)
    primary = np.reshape(outputs["primary_caps"], (4, 16, 8))
    assert_close(primary, IO["primary_poses"], atol=1e-5)
    assert_close(outputs["class_caps"], IO["class_poses"], atol=1e-5)
    # The published lengths have 1e-7 under the root.
    lengths = np.sqrt(np.square(outputs["lengths"]) + 1e-7)
    assert_close(lengths, IO["class_lengths"], atol=1e-5)
    couplings = rem.capsule_outputs(model)(IO["images"])["couplings"]
    assert_close(couplings, IO["couplings_before_bias"], atol=1e-5)


def test_reconstruction_of_the_longest_capsule_is_the_published_one(outputs):
    # A decoder that only masks.
    mask = Decoder((1, 80, 1), keras.layers.Reshape((1, 80, 1)))
    masked = np.reshape(mask(IO["class_poses"]), (4, 80))
    assert_close(masked, IO["masked_class_poses"])
    assert_close(
        outputs["reconstruction"][:1],
        IO["reconstruction_first_image"],
        atol=1e-4,
    )

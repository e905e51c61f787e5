"""The networks have the published sizes, and numbers of published weights."""

from functools import partial

import keras
import numpy as np
import pytest

from tests.golden import all_parameter_counts, load
from tests.tolerance import assert_close
from tfcaps import models, rem
from tfcaps.layers import Decoder

COUNTS = all_parameter_counts()

CIFAR = {"shape": (32, 32, 3)}
SMALLNORB = {"shape": (48, 48, 2), "classes": 5, "variant": "smallnorb"}


def of(network, shape=(28, 28, 1), classes=10, decoder=None, **settings):
    """Returns a function that makes a network, and its decoder if need be."""

    def make():
        model = getattr(models, network)(shape, classes, **settings)
        return models.with_decoder(model, **decoder) if decoder else model

    make.__name__ = network
    return make


dr, gamma, deep, efficient = map(
    partial(partial, of),
    ("dr_capsnet", "gamma_capsnet", "deepcaps", "efficient_capsnet"),
)
DENSE = {"network": "dense"}
UPSAMPLING = {"network": "upsampling"}
DECONVOLUTION = {"network": "deconvolution", "class_independent": True}
CIFAR_24 = partial(dr, (24, 24, 3), primary_types=64)
CIFAR_32 = partial(dr, **CIFAR, primary_types=64, kernel_size=3)
# What the golden file counts -> our network, or its decoder.
NETWORKS = {
    "DR-CapsNet MNIST (no decoder)": dr(),
    "DR-CapsNet MNIST (FC decoder)": dr(decoder=DENSE),
    "DR-CapsNet MNIST (Keras, FC decoder)": dr(use_bias=False, decoder=DENSE),
    "DR-CapsNet affNIST": dr((40, 40, 1)),
    "DR-CapsNet CIFAR-10 24x24 (no decoder)": CIFAR_24(),
    "DR-CapsNet CIFAR-10 24x24 (FC decoder)": CIFAR_24(decoder=DENSE),
    "DR-CapsNet CIFAR-10 32x32 (no decoder)": CIFAR_32(primary_kernel_size=3),
    "gamma-CapsNet MNIST": gamma(),
    "gamma-CapsNet MNIST (original)": gamma(decoder=DENSE),
    "gamma-CapsNet CIFAR-10": gamma(**CIFAR),
    "DeepCaps 28x28x1 (original)": deep(decoder=DECONVOLUTION),
    "DeepCaps 64x64x3 (original)": deep((64, 64, 3), decoder=DECONVOLUTION),
    "DeepCaps MNIST": deep(variant="rem"),
    "DeepCaps CIFAR-10": deep(**CIFAR, variant="rem"),
    "Efficient-CapsNet MNIST encoder": efficient(),
    "Efficient-CapsNet MNIST generator": efficient(decoder=DENSE),
    "Efficient-CapsNet smallNORB encoder": efficient(**SMALLNORB),
    "Efficient-CapsNet smallNORB generator": efficient(
        **SMALLNORB, decoder=UPSAMPLING
    ),
}
EM_OF_PAPER = {"filters": 32, "primary_types": 32, "conv_types": (32, 32)}


def size(weights):
    return sum(weight.numpy().size for weight in weights)


def test_every_published_count_is_compared():
    assert {name.split(" [")[0] for name in COUNTS} == set(NETWORKS)


@pytest.mark.parametrize("name", COUNTS)
def test_network_has_the_published_size(name):
    counts = COUNTS[name]
    network = NETWORKS[name.split(" [")[0]]()
    if name.endswith("generator"):
        network = network.get_layer("reconstruction").network
    else:
        assert network.inputs[0].shape[1:] == tuple(counts["input_shape"])
    assert network.count_params() == counts["total"]
    assert size(network.trainable_weights) == counts["total_trainable"]
    # Layers have other names there, and come in another order.
    theirs, ours = [], []
    for count in counts["per_layer"].values():
        theirs.append(count["count"] if isinstance(count, dict) else count)
    for layer in network.layers:
        # PyTorch does not count the statistics of normalisation.
        pytorch = "[EIDOSLAB/REM]" in name
        weights = layer.trainable_weights if pytorch else layer.weights
        ours.append(size(weights))
    assert sorted(count for count in ours if count) == sorted(theirs)


@pytest.mark.parametrize(
    ("network", "trainable"),
    [
        (efficient(**CIFAR), 168_544),
        (efficient(), 161_824),
        (deep(), 8_441_920),
        (of("em_capsnet", (32, 32, 1), 5, **EM_OF_PAPER), 316_394),
        (of("em_capsnet", (32, 32, 1), 5), 67_154),
        # Not published, counted by hand.
        (of("affine_capsnet"), 5_331_104),
        (of("multilayer_capsnet"), 121_680),
        (of("parts_capsnet"), 60_528),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_network_has_the_stated_size(network, trainable):
    assert size(network().trainable_weights) == trainable


def test_convolutional_network_has_the_published_capsules():
    network = models.efficient_conv_capsnet((128, 128, 3), 10)
    primary = network.get_layer("primary_caps")
    assert primary.output.shape == (None, 26, 26, 16, 16)
    routed = network.get_layer("conv_caps")
    assert routed.output.shape == (None, 12, 12, 16, 16)
    assert size([routed.transformation]) == 589_824
    classes = network.get_layer("class_caps")
    assert size([classes.transformation]) == 40_960
    backbone = [f"conv{n}" for n in (1, 2, 3, 4)]
    sizes = [network.get_layer(name).count_params() for name in backbone]
    assert sum(sizes) + primary.count_params() == 208_128
    norms = [network.get_layer(f"norm{n}") for n in (1, 2, 3, 4)]
    assert sum(size(norm.trainable_weights) for norm in norms) == 832


IO = load("05_efficient_capsnet_smallnorb_io")


@pytest.fixture(scope="module")
def model():
    """Returns the network with all published weights, layer by layer."""
    encoder = load("05_efficient_capsnet_smallnorb_weights")
    generator = load("05_efficient_capsnet_smallnorb_generator_weights")
    model = of("efficient_capsnet", **SMALLNORB, decoder=UPSAMPLING)()
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

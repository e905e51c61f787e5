"""The networks have as many parameters as the published ones, by layer."""

from functools import partial

import pytest

from tests.golden import all_parameter_counts
from tfcaps import models

COUNTS = all_parameter_counts()

MNIST = (28, 28, 1)
CIFAR_24 = partial(models.dr_capsnet, (24, 24, 3), 10, primary_types=64)
EFFICIENT_MNIST = partial(models.efficient_capsnet, MNIST, 10)
SMALLNORB = partial(
    models.efficient_capsnet, (48, 48, 2), 5, variant="smallnorb"
)

# What the golden file counts -> our network, or its decoder.
NETWORKS = {
    "DR-CapsNet MNIST (no decoder)": partial(models.dr_capsnet, MNIST, 10),
    "DR-CapsNet MNIST (FC decoder)": partial(
        models.dr_capsnet, MNIST, 10, decoder=True
    ),
    "DR-CapsNet MNIST (Keras, FC decoder)": partial(
        models.dr_capsnet, MNIST, 10, use_bias=False, decoder=True
    ),
    "DR-CapsNet affNIST": partial(models.dr_capsnet, (40, 40, 1), 10),
    "DR-CapsNet CIFAR-10 24x24 (no decoder)": CIFAR_24,
    "DR-CapsNet CIFAR-10 24x24 (FC decoder)": partial(CIFAR_24, decoder=True),
    "DR-CapsNet CIFAR-10 32x32 (no decoder)": partial(
        models.dr_capsnet,
        (32, 32, 3),
        10,
        primary_types=64,
        kernel_size=3,
        primary_kernel_size=3,
    ),
    "gamma-CapsNet MNIST": partial(models.gamma_capsnet, MNIST, 10),
    "gamma-CapsNet MNIST (original)": partial(
        models.gamma_capsnet, MNIST, 10, decoder=True
    ),
    "gamma-CapsNet CIFAR-10": partial(models.gamma_capsnet, (32, 32, 3), 10),
    "DeepCaps 28x28x1 (original)": partial(
        models.deepcaps, MNIST, 10, decoder=True
    ),
    "DeepCaps 64x64x3 (original)": partial(
        models.deepcaps, (64, 64, 3), 10, decoder=True
    ),
    "DeepCaps MNIST": partial(models.deepcaps, MNIST, 10, variant="rem"),
    "DeepCaps CIFAR-10": partial(
        models.deepcaps, (32, 32, 3), 10, variant="rem"
    ),
    "Efficient-CapsNet MNIST encoder": EFFICIENT_MNIST,
    "Efficient-CapsNet MNIST generator": partial(EFFICIENT_MNIST, decoder=True),
    "Efficient-CapsNet smallNORB encoder": SMALLNORB,
    "Efficient-CapsNet smallNORB generator": partial(SMALLNORB, decoder=True),
}


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
        (partial(models.efficient_capsnet, (32, 32, 3), 10), 168_544),
        (
            partial(
                models.efficient_capsnet, (36, 36, 1), 10, variant="multimnist"
            ),
            154_656,
        ),
        (EFFICIENT_MNIST, 161_824),
        (partial(models.deepcaps, MNIST, 10), 8_441_920),
        (
            partial(
                models.em_capsnet,
                (32, 32, 1),
                5,
                filters=32,
                primary_types=32,
                conv_types=(32, 32),
            ),
            316_394,
        ),
        (partial(models.em_capsnet, (32, 32, 1), 5), 67_154),
        # Not published, counted by hand.
        (partial(models.affine_capsnet, MNIST, 10), 5_331_104),
        (partial(models.multilayer_capsnet, MNIST, 10), 121_680),
        (partial(models.parts_capsnet, MNIST, 10), 60_528),
    ],
    ids=[
        "svhn",
        "multimnist",
        "mnist",
        "deepcaps",
        "em-paper",
        "em-small",
        "affine",
        "multilayer",
        "parts",
    ],
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

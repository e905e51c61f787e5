"""The contract of every public network, and its errors."""

import inspect
import re

import keras
import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, every_network
from tests.tolerance import assert_close
from tfcaps import models
from tfcaps.losses import MarginLoss, ReconstructionLoss
from tfcaps.routing import UniformRouting
from training.devices import dtype_policy

LABELS = np.array([0, 2])
OF_NINE = "for kernel_size=9 and primary_kernel_size=9"


def images_for(model, rng):
    """Returns two random images."""
    images = model.input["images"] if model.inputs[1:] else model.input
    return rng.random((2, *images.shape[1:]), dtype=np.float32)


def test_every_network_is_tried():
    functions = dict(inspect.getmembers(models, inspect.isfunction))
    others = {
        "with_decoder",
        "with_templates",
        "without_spare_types",
        "load_pretrained",
    }
    assert set(functions) - others == set(SMALL_NETWORKS)


@every_network
def test_network_gives_lengths_of_all_classes(name, rng):
    model = SMALL_NETWORKS[name]()
    assert model.name == name
    assert [tensor.name for tensor in model.inputs] == ["images"]
    assert model.output_names == ["lengths"]
    assert model.output_shape == (None, 3)
    # Before any training, DeepCaps needs the statistics of the batch.
    lengths = np.asarray(model(images_for(model, rng), training=True))
    assert np.all(lengths >= 0) and np.all(lengths < 1)
    # Samples differ, so the image reaches the output.
    assert np.any(lengths[0] != lengths[1])


@every_network
def test_network_with_decoder_can_be_trained_saved_and_loaded(
    name, rng, tmp_path
):
    model = SMALL_NETWORKS[name](decoder=True)
    assert [tensor.name for tensor in model.inputs] == ["images", "labels"]
    assert set(model.output) == {"lengths", "reconstruction"}
    images = images_for(model, rng)
    assert model.output["reconstruction"].shape == (None, *images.shape[1:])
    model.compile(
        keras.optimizers.SGD(0.1),
        {"lengths": MarginLoss(), "reconstruction": ReconstructionLoss()},
        jit_compile=False,
        run_eagerly=True,
    )
    before = [weight.numpy() for weight in model.trainable_weights]
    loss = model.train_on_batch(
        {"images": images, "labels": LABELS},
        {"lengths": LABELS, "reconstruction": images},
    )
    assert np.all(np.isfinite(loss))
    moved = [
        np.any(weight.numpy() != old)
        for weight, old in zip(model.trainable_weights, before, strict=True)
    ]
    assert np.mean(moved) > 0.9
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    inputs = {"images": images, "labels": LABELS}
    expected = model(inputs)
    for output, value in loaded(inputs).items():
        assert_close(value, expected[output], atol=1e-5)


@every_network
def test_lengths_are_float32_under_mixed_precision(name, rng):
    with dtype_policy("mixed_float16"):
        model = SMALL_NETWORKS[name]()
    assert model.get_layer("class_caps").compute_dtype == "float16"
    lengths = model(images_for(model, rng))
    assert lengths.dtype.name == "float32"
    assert np.all(np.isfinite(lengths))


@pytest.mark.parametrize(
    ("make", "smallest", "because"),
    [
        (models.dr_capsnet, 17, OF_NINE),
        (models.affine_capsnet, 17, OF_NINE),
        (models.gamma_capsnet, 17, OF_NINE),
        (models.efficient_capsnet, 11, "for variant='mnist'"),
        (models.efficient_conv_capsnet, 33, "for its five windows"),
        (models.em_capsnet, 13, "for its windows"),
        (models.multilayer_capsnet, 9, "for kernel_size=9"),
        (models.parts_capsnet, 5, "for windows of 5x5"),
        (models.deepcaps, 1, ""),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_images_of_a_wrong_shape_are_refused(make, smallest, because):
    shapes = [(40, 40), (40, smallest - 1, 1), (smallest - 1, 40, 1)]
    for shape in shapes:
        message = (
            "`input_shape` must be (rows, columns, channels) with at least "
            f"{smallest} rows and {smallest} columns {because}. Received: "
            f"input_shape={shape}."
        )
        with pytest.raises(ValueError, match=re.escape(message)):
            make(shape, 3)


@pytest.mark.parametrize(
    ("network", "sides", "settings"),
    [
        ("dr_capsnet", (17, 17), {"filters": 2, "primary_types": 1}),
        ("efficient_capsnet", (11, 11), {}),
        ("efficient_capsnet", (19, 20), {"variant": "smallnorb"}),
        ("efficient_capsnet", (29, 30), {"variant": "multimnist"}),
        ("efficient_conv_capsnet", (33, 33), {}),
        ("em_capsnet", (13, 13), {"filters": 2}),
        ("multilayer_capsnet", (9, 9), {}),
        ("gamma_capsnet", (17, 17), {"filters": 2, "primary_types": 1}),
    ],
)
def test_smallest_images_are_accepted(network, sides, settings):
    model = getattr(models, network)((*sides, 1), 2, **settings)
    assert model(np.ones((1, *sides, 1), "float32")).shape == (1, 2)


def test_windows_of_primary_caps_need_not_be_square():
    settings = {"filters": 2, "primary_kernel_size": (2, 6)}
    model = models.dr_capsnet((10, 14, 3), 2, **settings)
    assert model.get_layer("primary_caps").output.shape[1:3] == (1, 1)
    message = "at least 10 rows and 14 columns .* Use larger images or smaller"
    with pytest.raises(ValueError, match=message):
        models.dr_capsnet((14, 10, 3), 2, **settings)


def test_variants_of_deepcaps_differ_as_published():
    corrected, rem = (
        models.deepcaps((8, 8, 1), 2, variant=variant)
        for variant in ("corrected", "rem")
    )
    for model, activation, bias, depth, momentum, source in (
        (corrected, "relu", False, None, 0.99, "cell4_sum"),
        (rem, "linear", True, 3, 0.01, "cell3_sum"),
    ):
        assert model.get_layer("conv").activation.__name__ == activation
        assert model.get_layer("cell1_conv1").use_bias is bias
        assert model.get_layer("cell4_routed").depth == depth
        assert model.get_layer("norm").momentum == momentum
        last = model.get_layer("children").input[0]._keras_history.operation
        assert last.input._keras_history.operation.name == source
    # The convolutions of "rem" pad alike on both sides.
    images = np.random.default_rng(0).random((1, 8, 8, 1)).astype("float32")
    assert np.all(np.isfinite(rem(images)))


def test_settings_reach_the_layers():
    def layer(network, name="class_caps", **settings):
        return SMALL_NETWORKS[network](**settings).get_layer(name)

    assert SMALL_NETWORKS["dr_capsnet"](name="x").name == "x"
    for network in ("dr_capsnet", "efficient_conv_capsnet"):
        found = layer(network, routing=2, share="all")
        assert (found.routing.iterations, found.share) == (2, "all")
    assert layer("affine_capsnet").share == "all"
    assert isinstance(layer("affine_capsnet").routing, UniformRouting)
    found = layer("affine_capsnet", routing=2, share=None)
    assert (found.routing.iterations, found.share) == (2, None)
    for network, hidden in (
        ("gamma_capsnet", "hidden_caps"),
        ("efficient_conv_capsnet", "conv_caps"),
        ("multilayer_capsnet", "hidden_caps1"),
        ("em_capsnet", "conv_caps2"),
    ):
        for name in (hidden, "class_caps"):
            assert layer(network, name, routing=2).routing.iterations == 2
    assert layer("em_capsnet").coordinates


def test_initial_transformations_are_the_published_ones():
    efficient = models.efficient_capsnet((12, 12, 1), 10)
    weight = efficient.get_layer("class_caps").transformation
    expected = keras.initializers.HeNormal(seed=0)(weight.shape)
    assert np.std(weight) == pytest.approx(np.std(expected), rel=0.05)
    em = SMALL_NETWORKS["em_capsnet"]().get_layer("conv_caps1")
    assert 0.8 < np.std(em.transformation) < 1.1


@pytest.mark.parametrize(
    ("network", "settings", "said"),
    [
        (
            "deepcaps",
            {"variant": "official"},
            "`variant` must be one of ('corrected', 'rem'). Received: "
            "variant='official'.",
        ),
        (
            "efficient_capsnet",
            {"variant": "svhn"},
            "`variant` must be one of ('mnist', 'multimnist', 'smallnorb'). "
            "Received: variant='svhn'.",
        ),
        (
            "multilayer_capsnet",
            {"capsules": ()},
            "`capsules` must be one or more numbers of at least 1. Received: "
            "capsules=().",
        ),
        ("deepcaps", {"decoder": True}, "needs sides divisible by 4."),
    ],
)
def test_wrong_settings_are_refused(network, settings, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        getattr(models, network)((30, 28, 1), 3, **settings)


def test_strides_make_the_grid_of_parts_coarser():
    def grid(**settings):
        model = models.parts_capsnet((32, 32, 1), 2, **settings)
        return model.get_layer("primary_caps").output.shape[1:3]

    assert grid() == (8, 8)
    assert grid(filters=(4, 4, 4)) == (4, 4)
    assert grid(filters=(4, 4, 4), strides=(2, 2, 2)) == (2, 2)
    with pytest.raises(ValueError, match="`strides` must be as many"):
        grid(filters=(4, 4), strides=(2,))

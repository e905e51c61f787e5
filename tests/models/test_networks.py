"""The contract of every public network, and its errors."""

import inspect

import keras
import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, every_network, images_of
from tests.refusals import assert_refused, refused
from tests.tolerance import assert_close
from tfcaps import models
from tfcaps.losses import MarginLoss, ReconstructionLoss
from tfcaps.routing import UniformRouting

LABELS = np.array([0, 2])


def test_every_network_is_tried():
    functions = dict(inspect.getmembers(models, inspect.isfunction))
    # Body plans are estimated and not trained, see tests/parts.
    others = {"with_decoder", "load_pretrained", "body_plan_capsnet"}
    tried = {name.removeprefix("backbone_") for name in SMALL_NETWORKS}
    assert set(functions) - others == tried


@every_network
def test_network_gives_lengths_and_is_trained_saved_and_loaded(name, tmp_path):
    plain = SMALL_NETWORKS[name]()
    assert plain.name == name
    assert [tensor.name for tensor in plain.inputs] == ["images"]
    assert plain.output_names == ["lengths"]
    assert plain.output_shape == (None, 3)
    images = images_of(plain, 2)
    # Before any training, DeepCaps needs the statistics of the batch.
    lengths = np.asarray(plain(images, training=True))
    assert np.all(lengths >= 0) and np.all(lengths < 1)
    # Samples differ, so the image reaches the output.
    assert np.any(lengths[0] != lengths[1])

    if "constellation" in name:
        model = models.with_decoder(plain)
    else:
        model = SMALL_NETWORKS[name](decoder=True)
    assert [tensor.name for tensor in model.inputs] == ["images", "labels"]
    assert set(model.output) == {"lengths", "reconstruction"}
    assert model.output["reconstruction"].shape == (None, *images.shape[1:])
    model.compile(
        keras.optimizers.SGD(0.1),
        {"lengths": MarginLoss(), "reconstruction": ReconstructionLoss()},
        run_eagerly=True,
    )
    before = [weight.numpy() for weight in model.trainable_weights]
    inputs = {"images": images, "labels": LABELS}
    loss = model.train_on_batch(
        inputs, {"lengths": LABELS, "reconstruction": images}
    )
    assert np.all(np.isfinite(loss))
    moved = [
        np.any(weight.numpy() != old)
        for weight, old in zip(model.trainable_weights, before, strict=True)
    ]
    assert np.mean(moved) > 0.9
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    expected = model(inputs)
    for output, value in loaded(inputs).items():
        assert_close(value, expected[output], atol=1e-5)


# The smallest images of each.
@pytest.mark.parametrize(
    ("network", "sides", "settings", "because"),
    [
        ("affine_capsnet", (17, 17), {}, "for kernel_size=9 and primary_k"),
        ("dr_capsnet", (17, 17), {}, "for kernel_size=9 and primary_kernel_s"),
        ("gamma_capsnet", (17, 17), {}, "for kernel_size=9 and primary_kern"),
        ("efficient_capsnet", (11, 11), {}, "for variant='mnist'"),
        ("efficient_capsnet", (19, 19), {"variant": "smallnorb"}, "for vari"),
        ("efficient_conv_capsnet", (33, 33), {}, "for its five windows"),
        ("em_capsnet", (13, 13), {"filters": 2}, "for its windows"),
        ("multilayer_capsnet", (9, 9), {}, "for kernel_size=9"),
        ("parts_capsnet", (5, 5), {}, "for windows of 5x5"),
        ("deepcaps", (1, 1), {}, ""),
    ],
)
def test_smaller_images_are_refused(network, sides, settings, because):
    make = getattr(models, network)
    if network in ("affine_capsnet", "dr_capsnet", "gamma_capsnet"):
        settings = {"filters": 2, "primary_types": 1}
    if network not in ("affine_capsnet", "deepcaps", "parts_capsnet"):
        model = make((*sides, 1), 2, **settings)
        assert model(np.ones((1, *sides, 1), "float32")).shape == (1, 2)
    rows, columns = sides
    for shape in ((40, 40), (40, columns - 1, 1), (rows - 1, 40, 1)):
        assert_refused(
            lambda shape=shape: make(shape, 3, **settings),
            "`input_shape` must be (rows, columns, channels) with at least "
            f"{rows} rows and {columns} columns {because}",
        )


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
    assert np.all(np.isfinite(rem(images_of(rem, 1))))


def test_settings_reach_the_layers():
    assert SMALL_NETWORKS["dr_capsnet"](name="x").name == "x"
    for network, settings, expected in (
        ("dr_capsnet", {"share": "all"}, {"class_caps": (2, "all")}),
        ("affine_capsnet", {"share": None}, {"class_caps": (2, None)}),
        ("gamma_capsnet", {}, {"hidden_caps": (2, None)}),
        (
            "efficient_conv_capsnet",
            {},
            {"conv_caps": (2, ""), "class_caps": (2, "type")},
        ),
        ("multilayer_capsnet", {}, {"hidden_caps1": (2, None)}),
        ("em_capsnet", {}, {"conv_caps2": (2, ""), "class_caps": (2, "type")}),
    ):
        model = SMALL_NETWORKS[network](routing=2, **settings)
        for name, wanted in expected.items():
            layer = model.get_layer(name)
            share = getattr(layer, "share", "")
            assert (layer.routing.iterations, share) == wanted, network
    found = SMALL_NETWORKS["affine_capsnet"]().get_layer("class_caps")
    assert (type(found.routing), found.share) == (UniformRouting, "all")


def test_initial_transformations_are_the_published_ones():
    efficient = models.efficient_capsnet((12, 12, 1), 10)
    weight = efficient.get_layer("class_caps").transformation
    expected = keras.initializers.HeNormal(seed=0)(weight.shape)
    assert np.std(weight) == pytest.approx(np.std(expected), rel=0.05)
    em = SMALL_NETWORKS["em_capsnet"]().get_layer("conv_caps1")
    assert 0.8 < np.std(em.transformation) < 1.1


test_wrong_settings_are_refused = refused(
    """
deepcaps((30, 28, 1), 3, variant="official")
    `variant` must be one of ('corrected', 'rem'). Received: variant='official'.
efficient_capsnet((30, 28, 1), 3, variant="svhn")
    `variant` must be one of ('mnist', 'smallnorb'). Received: variant='svhn'.
multilayer_capsnet((30, 28, 1), 3, capsules=())
    `capsules` must be one or more numbers of at least 1. Received: capsules=().
constellation_capsnet(10, (32, 32, 1))
    `input_shape` must be (rows, columns, channels)
parts_capsnet((30, 28, 1), 3, filters=(4, 4), strides=(2,))
    `strides` as many
dr_capsnet((14, 10, 3), 2, filters=2, primary_kernel_size=(2, 6))
    (2, 6). Received: input_shape=(14, 10, 3). Use larger images or smaller
""",
    **vars(models),
)

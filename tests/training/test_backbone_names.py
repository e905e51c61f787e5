"""The networks of `keras.applications` by name."""

from functools import partial

import keras
import numpy as np
import pytest

from cli import UserError
from tests.nightly import nightly
from tests.training.test_run import command, tiny_data
from training import backbone, configs, networks
from training.datasets import Data
from training.image_data import Images, Split


@pytest.fixture(autouse=True)
def untrained(monkeypatch):
    """Leaves out the download, whose weights are not there in tests."""
    monkeypatch.setattr(
        backbone, "build", partial(backbone.build, weights=None)
    )


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("MobileNetV3Small", "mobilenet_v3"),
        ("MobileNetV2", "mobilenet_v2"),
        ("ResNet50", "resnet"),
        ("ResNet50V2", "resnet_v2"),
        ("EfficientNetB0", "efficientnet"),
        ("DenseNet121", "densenet"),
        ("ConvNeXtTiny", "convnext"),
        ("VGG16", "vgg16"),
    ],
)
def test_images_are_scaled_as_the_family_says(name, family, rng, tmp_path):
    images = keras.Input((4, 5, 3))
    scaled = backbone.preprocessed(name, images)
    keras.Model(images, scaled).save(tmp_path / "scale.keras")
    model = keras.models.load_model(tmp_path / "scale.keras")
    pixels = rng.integers(0, 256, (2, 4, 5, 3)).astype(np.float32)
    told = getattr(keras.applications, family).preprocess_input
    np.testing.assert_allclose(
        model(pixels / 255), told(pixels.copy()), rtol=1e-5, atol=1e-3
    )


@pytest.mark.parametrize(
    ("name", "side", "layer", "grid"),
    [
        ("MobileNetV2", 128, "block_13_expand_relu", 8),
        ("MobileNetV2", 64, "block_13_expand_relu", 4),
        ("MobileNetV2", 160, "out_relu", 5),
        ("VGG16", 40, "block4_conv3", 5),
        pytest.param("ResNet50", 96, "conv4_block6_out", 6, marks=nightly),
        pytest.param("NASNetMobile", 64, "normal_concat_8", 4, marks=nightly),
    ],
)
def test_the_deepest_map_with_positions_is_taken(name, side, layer, grid):
    model = backbone.application(name, (side, side, 3))
    assert model.output_shape[1:3] == (grid, grid)
    assert model.layers[-1].name == layer


@nightly
@pytest.mark.parametrize("name", backbone.NAMES)
def test_every_network_has_a_map_with_positions(name):
    model = backbone.application(name, (96, 96, 3))
    assert min(model.output_shape[1:3]) >= 4


def test_grey_images_become_colours_and_small_ones_large(rng):
    grey = backbone.application("MobileNetV2", (28, 32, 1))
    assert grey.input_shape == (None, 32, 32, 1)
    colour = backbone.application("MobileNetV2", (32, 32, 3))
    colour.set_weights(grey.get_weights())
    images = rng.random((2, 32, 32, 1), dtype=np.float32)
    maps = grey.predict_on_batch(images)
    assert np.ptp(maps) > 0
    np.testing.assert_array_equal(
        maps, colour.predict_on_batch(np.repeat(images, 3, axis=-1))
    )
    with pytest.raises(UserError, match="grey or colour images; these have 2"):
        backbone.application("MobileNetV2", (32, 32, 2))


def test_no_other_scale_is_put_before_it():
    images = Images(np.zeros((4, 32, 32, 3), np.uint8))
    part = Split(images, np.arange(4) % 2)
    data = Data("two", part, part, part, ("a", "b"))
    config = configs.Config(
        model="parts_capsnet", backbone="MobileNetV2", measured=True
    )
    model = networks.build_for(data, config, decoder=False)
    assert "standardize" not in [layer.name for layer in model.layers]


def fails(message):
    def make(**settings):
        raise Exception(message)  # as Keras does

    return make


def test_weights_that_cannot_be_had_are_one_sentence(
    monkeypatch, tmp_path, capsys
):
    url = "https://storage.example/mobilenet_v2/weights_no_top.h5"
    monkeypatch.setattr(
        keras.applications,
        "MobileNetV2",
        fails(f"URL fetch failure on {url}: None -- [Errno -2] unknown"),
    )
    data = tiny_data(tmp_path / "tiny.npz", size=32)
    flags = ("--backbone", "MobileNetV2", "--model", "parts_capsnet")
    assert command("--dataset", data, *flags) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert url in told and "download weights_no_top.h5 and put it into" in told
    assert "~/.keras/models" in told and "KERAS_HOME" in told
    assert "give a .keras file" in told


def test_a_wrong_name_is_refused():
    with pytest.raises(UserError, match="such as MobileNetV3Small, or"):
        backbone.load("mobilenetv3smal", None, (32, 32, 3))
    assert len(backbone.NAMES) > 30

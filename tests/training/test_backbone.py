"""Capsules on a frozen backbone, also one of keras.applications by its name."""

from functools import partial

import keras
import numpy as np
import pytest

from cli import UserError
from tests.networks import SMALL_NETWORKS
from tests.nightly import nightly
from tests.small_data import noise
from tests.tolerance import assert_all_equal, assert_close
from tests.training.test_run import refused, tiny_data
from tfcaps import models, rem
from training import backbone, configs, networks


@keras.saving.register_keras_serializable(package="tests")
class Block(keras.layers.Layer):
    """A layer of layers, which Keras does not freeze after loading."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.conv = keras.layers.Conv2D(4, 3, data_format="channels_last")
        self.norm = keras.layers.BatchNormalization()

    def build(self, input_shape):
        self.conv.build(input_shape)
        self.norm.build(self.conv.compute_output_shape(input_shape))

    def call(self, inputs, training=False):
        return self.norm(self.conv(inputs), training=training)


def features(side=9, channels=1):
    return keras.Sequential([keras.Input((side, side, channels)), Block()])


SMALL = SMALL_NETWORKS["backbone_dr_capsnet"].keywords


def loaded(model, folder):
    model.save(folder / "model.keras")
    return keras.models.load_model(folder / "model.keras")


@pytest.mark.parametrize(
    "copy",
    [
        lambda model, folder: model,
        pytest.param(loaded, marks=pytest.mark.slow),
        pytest.param(
            lambda model, folder: rem.quantize_couplings(model, 11),
            marks=pytest.mark.slow,
        ),
        lambda model, folder: rem.compact(model),
    ],
    ids=["itself", "loaded", "quantized", "compact"],
)
def test_the_backbone_is_neither_trained_nor_pruned(copy, rng, tmp_path):
    images = rng.random((8, 9, 9, 1), dtype=np.float32)
    model = copy(
        models.dr_capsnet(None, 3, backbone=features(), **SMALL), tmp_path
    )
    names = {weight.path.split("/")[0] for weight in model.trainable_variables}
    assert names == {"primary_caps", "class_caps"}
    backbone = model.get_layer("backbone")
    before = [np.array(weight) for weight in backbone.weights]
    model.compile("adam", "mse", jit_compile=False)
    rem.prune_low_magnitude(model, lambda step: 0.5)
    model.fit(
        images, np.ones((8, 3)), verbose=0, callbacks=[rem.UpdatePruningStep()]
    )
    assert len(before) == 6
    assert_all_equal(backbone.weights, before)
    assert rem.sparsity(model) == pytest.approx(0.5, abs=0.01)


def test_images_go_through_the_backbone_in_its_size(rng):
    backbone = features()
    model = models.dr_capsnet((12, 12, 1), 3, backbone=backbone, **SMALL)
    images = rng.random((2, 12, 12, 1), dtype=np.float32)
    resized = keras.ops.image.resize(
        images, (9, 9), data_format="channels_last"
    )
    maps = np.maximum(backbone(resized), 0)
    maps = np.pad(maps, ((0, 0), (1, 1), (1, 1), (0, 0)))
    poses = model.get_layer("class_caps")(model.get_layer("primary_caps")(maps))
    expected = np.linalg.norm(poses, axis=-1)
    np.testing.assert_allclose(model(images), expected, atol=1e-5)


def test_backbones_without_one_feature_map_are_refused():
    images = keras.Input((9, 9, 1))
    for wrong in (
        keras.Sequential([keras.layers.Conv2D(4, 3)]),
        keras.Model(images, [images, images]),
        keras.Model(images, keras.layers.Flatten()(images)),
    ):
        with pytest.raises(ValueError, match="must be a built model from"):
            models.dr_capsnet(None, 3, backbone=wrong)


def test_sizes_that_do_not_fit_are_refused():
    backbone = features(None)
    for shape in (None, (9, 9, 3), (9, 9)):
        with pytest.raises(ValueError, match="with the backbone's channels"):
            models.dr_capsnet(shape, 3, backbone=backbone)
    with pytest.raises(ValueError, match=r"7 rows .* padding=0, is too small"):
        models.dr_capsnet(None, 3, backbone=features(), padding=0)
    model = models.dr_capsnet((9, 12, 1), 3, backbone=backbone)
    assert model.get_layer("backbone").output.shape == (None, 7, 10, 4)


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
    assert_close(model(pixels / 255), told(pixels.copy()), atol=1e-3, rtol=1e-5)


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


@pytest.mark.slow
def test_grey_images_become_colours_and_small_ones_large(rng):
    grey = backbone.application("MobileNetV2", (28, 32, 1))
    assert grey.input_shape == (None, 32, 32, 1)
    colour = backbone.application("MobileNetV2", (32, 32, 3))
    colour.set_weights(grey.get_weights())
    images = rng.random((2, 32, 32, 1), dtype=np.float32)
    maps = grey.predict_on_batch(images)
    assert np.ptp(maps) > 0
    same = colour.predict_on_batch(np.repeat(images, 3, axis=-1))
    np.testing.assert_array_equal(maps, same)
    with pytest.raises(UserError, match="grey or colour images; these have 2"):
        backbone.application("MobileNetV2", (32, 32, 2))


def test_no_other_scale_is_put_before_it():
    data = noise(3, 32, 3)
    config = configs.Config(
        model="parts_capsnet", backbone="MobileNetV2", measured=True
    )
    model = networks.build_for(data, config, decoder=False)
    assert "standardize" not in [layer.name for layer in model.layers]


def test_weights_that_cannot_be_had_are_one_sentence(monkeypatch, tmp_path):
    url = "https://storage.example/mobilenet_v2/weights_no_top.h5"

    def fail(**settings):
        # As Keras does.
        raise Exception(f"URL fetch failure on {url}: None -- [Errno -2]")

    monkeypatch.setattr(keras.applications, "MobileNetV2", fail)
    data = tiny_data(tmp_path / "tiny.npz", size=32)
    flags = ("--backbone", "MobileNetV2", "--model", "parts_capsnet")
    told = refused("--dataset", data, *flags)
    assert told.count("\n") == 1
    assert url in told and "download weights_no_top.h5 and put it into" in told
    assert "~/.keras/models" in told and "KERAS_HOME" in told
    assert "give a .keras file" in told
    # A mistake in the code is none of the weights.
    monkeypatch.setattr(keras.applications, "MobileNetV2", lambda: None)
    with pytest.raises(TypeError, match="unexpected keyword"):
        backbone.build("MobileNetV2", (32, 32, 3))


def test_it_is_a_file_by_itself_or_in_the_folder_or_has_a_name(tmp_path):
    features().save(tmp_path / "own.keras")
    file = str(tmp_path / "own.keras")
    for name, folder in (("own.keras", str(tmp_path)), (file, None)):
        own = backbone.load(name, folder, (9, 9, 1))
    network = networks.build("dr_capsnet", (12, 12, 1), 3, backbone=own)
    assert network.get_layer("backbone").model.name == own.name
    with pytest.raises(UserError, match="such as MobileNetV3Small, or"):
        backbone.load("mobilenetv3smal", None, (32, 32, 3))
    assert len(backbone.NAMES) > 30

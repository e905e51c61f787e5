"""Capsules on a frozen backbone."""

import keras
import numpy as np
import pytest

from cli import UserError
from tests.networks import SMALL_NETWORKS
from tests.small_data import noise
from tests.tolerance import assert_all_equal
from tfcaps import models, rem
from training import backbone, configs, efficientnet_lite0, networks


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


def test_no_other_scale_is_put_before_one_with_a_name(monkeypatch):
    known = keras.Sequential([keras.Input((32, 32, 3)), Block()])
    monkeypatch.setattr(efficientnet_lite0, "build", lambda shape: known)
    config = configs.Config(
        model="parts_capsnet", backbone="efficientnet_lite0", measured=True
    )
    model = networks.build_for(noise(3, 32, 3), config)
    assert "standardize" not in [layer.name for layer in model.layers]


def test_it_is_a_file_by_itself_or_in_the_folder_or_has_a_name(tmp_path):
    features().save(tmp_path / "own.keras")
    file = str(tmp_path / "own.keras")
    for name, folder in (("own.keras", str(tmp_path)), (file, None)):
        own = backbone.load(name, folder, (9, 9, 1))
    network = networks.build("dr_capsnet", (12, 12, 1), 3, backbone=own)
    assert network.get_layer("backbone").model.name == own.name
    with pytest.raises(UserError, match="its top, or efficientnet_lite0"):
        backbone.load("efficientnet", None, (32, 32, 3))

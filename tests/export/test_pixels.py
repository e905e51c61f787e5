"""What a pixel is: bytes that the network scales itself are not divided."""

import keras
import numpy as np
import pytest
from keras import layers

from tests.export.test_formats import OTHERS, needs
from tests.export.test_save import served
from tests.tolerance import SUMS
from tfcaps import export, rem
from tfcaps.export import runtimes
from tfcaps.export.pixels import Pixels, pixels_of
from tfcaps.export.versions import read_manifest
from tfcaps.layers import ClassCaps, Length, PrimaryCaps
from tfcaps.models.backbone import FrozenModel

BYTES, UNIT = Pixels("uint8", 255), Pixels("float32", 1)


def network(*front, shape=(8, 8, 3), dtype=None):
    """Returns a network whose first layers are those given."""
    tensor = images = keras.Input(shape, dtype=dtype)
    for layer in (*front, layers.Conv2D(4, 3), PrimaryCaps(2, 4, 3, strides=2)):
        tensor = layer(tensor)
    return keras.Model(images, Length()(ClassCaps(3, 4)(tensor)))


def normalised_by_batches():
    layer = layers.BatchNormalization()
    layer.build((None, 8, 8, 3))
    layer.set_weights(np.float32([[1.0] * 3, [0] * 3, [120] * 3, [4000] * 3]))
    return layer


def normalization():
    return layers.Normalization(mean=[120.0, 110, 100], variance=[2500.0] * 3)


def application():
    images = keras.Input((8, 8, 3))
    scaled = layers.Rescaling(1 / 127.5, -1)(images)
    return keras.Model(images, layers.Conv2D(3, 1)(scaled))


FLIPPED = [layers.RandomFlip(), layers.Rescaling(1 / 127.5)]
# Of each network its first layers, what else it has, and what a pixel is.
CASES = {
    "nothing": ([], {}, UNIT),
    "in a model": ([keras.Sequential(FLIPPED)], {}, BYTES),
    "application": ([application()], {}, BYTES),
    "frozen": ([FrozenModel(application())], {}, BYTES),
    "normalization": ([normalization()], {}, BYTES),
    "means alone": ([layers.Rescaling(1.0, -120.0)], {}, BYTES),
    "means alone, from [0, 1]": ([layers.Rescaling(255.0, -120.0)], {}, UNIT),
    "of [0, 1]": ([layers.Normalization(mean=0.5, variance=0.1)], {}, UNIT),
    "batch normalization": ([normalised_by_batches()], {}, BYTES),
    "of each image": ([layers.LayerNormalization()], {}, UNIT),
    "lambda": ([layers.Lambda(lambda x: x / 127.5 - 1)], {}, BYTES),
    "operations": ([lambda x: (x - 128.0) / 64.0], {}, BYTES),
    "integers": ([layers.Rescaling(1 / 255)], {"dtype": "uint8"}, BYTES),
    "a row of a table": (
        [layers.Reshape((8, 8, 3))],
        {"shape": (192,)},
        Pixels("float32", None),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_network_takes_is_known(name):
    front, settings, wanted = CASES[name]
    assert pixels_of(rem.classifier(network(*front, **settings))) == wanted


SCALED = layers.Rescaling(1 / 255)


@pytest.mark.parametrize(
    ("front", "dtype", "pixels", "message"),
    [
        ([SCALED], "float32", None, 'must be "uint8"'),
        ([], "int8", None, '"uint8" or "float32". Received: input_dtype='),
        ([], None, 2, "must be 1 or 255. Received: pixels=2"),
        ([], "float32", 255, "from 0 to 255 and scales"),
    ],
)
def test_what_contradicts_the_network_is_refused(front, dtype, pixels, message):
    with pytest.raises(ValueError, match=message):
        pixels_of(network(*front), dtype, pixels)


def test_what_is_asked_goes_before_what_was_seen():
    plain, scaled = network(), network(layers.Rescaling(1 / 255))
    assert pixels_of(plain, pixels=255) == BYTES
    assert pixels_of(plain, "uint8") == Pixels("uint8", 255, 255)
    assert pixels_of(scaled, "float32", pixels=1) == UNIT


@pytest.mark.slow
@pytest.mark.parametrize("name", ["integers", "normalization"])
def test_bytes_get_the_answers_of_the_model_itself(name, tmp_path, rng):
    front, settings, _ = CASES[name]
    model = network(*front, **settings)
    folder = export.save(model, tmp_path / "m")
    pixels = rng.integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
    wanted = rem.explanation(model)(
        pixels.astype(model.inputs[0].dtype), training=False
    )
    for signature in ("serving_default", "explain"):
        for key, value in served(folder, signature, pixels).items():
            np.testing.assert_allclose(value, wanted[key], atol=4 * SUMS)
    for about in read_manifest(folder)["signatures"].values():
        sent = about["inputs"]["images"]
        assert (sent["dtype"], sent["range"]) == ("uint8", [0, 255])


@pytest.mark.slow
@pytest.mark.parametrize("form", OTHERS)
def test_what_only_training_needs_is_not_exported(form, tmp_path):
    needs(form)
    turned = layers.RandomFlip(), layers.RandomRotation(0.1)
    noise = layers.GaussianNoise(0.1), layers.RandomZoom(0.1)
    model = network(keras.Sequential(turned), *noise, normalization())
    folder = export.save(model, tmp_path / "m", formats=[form])  # and checks
    with pytest.raises(export.ExportError, match="must have an image at least"):
        runtimes.Model(folder, form).load()("encode", np.zeros((0, 8, 8, 3)))


@pytest.mark.slow
def test_a_model_that_begins_with_reshape_is_exported(tmp_path):
    model = network(layers.Reshape((8, 8, 3), name="reshape"), shape=(192,))
    named = keras.Model(model.input, model.output, name="images")
    keras.utils.clear_session()
    about = read_manifest(export.save(named, tmp_path / "m"))
    assert about["signatures"]["encode"]["inputs"]["images"] == {
        "dtype": "float32",
        "shape": [-1, 192],
    }

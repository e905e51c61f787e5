"""What is made of maps whose channels are first, or if Keras is set so."""

import keras
import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, every_network, images_of
from tests.tolerance import SUMS
from tfcaps import layers, models, parts

MAPS = {
    "PrimaryCaps": lambda **k: layers.PrimaryCaps(4, 8, 3, **k),
    "PrimaryMatrixCaps": lambda **k: layers.PrimaryMatrixCaps(4, **k),
    "PartCaps": lambda **k: parts.PartCaps(4, **k),
}


@pytest.fixture
def channels_first():
    keras.config.set_image_data_format("channels_first")
    yield
    keras.config.set_image_data_format("channels_last")


@pytest.mark.parametrize("name", MAPS)
def test_channels_first_are_refused(name, channels_first):
    with pytest.raises(ValueError, match=f"{name} takes maps .* setting of Ke"):
        MAPS[name]()
    with pytest.raises(ValueError, match="Received: data_format='channels_f"):
        MAPS[name](data_format="channels_first")
    assert MAPS[name](data_format="channels_last")


@every_network
def test_networks_do_not_depend_on_the_setting_of_keras(name):
    plain = SMALL_NETWORKS[name]()
    images = images_of(plain, 2)
    expected = plain(images)
    keras.config.set_image_data_format("channels_first")
    try:
        other = SMALL_NETWORKS[name]()
        loaded = type(plain).from_config(plain.get_config())
        for each in (other, loaded):
            each.set_weights(plain.get_weights())
            for a, b in zip(
                *map(keras.tree.flatten, (each(images), expected)), strict=True
            ):
                np.testing.assert_allclose(a, b, atol=SUMS)
    finally:
        keras.config.set_image_data_format("channels_last")


def test_builders_take_rows_first_whatever_the_setting(channels_first):
    backbone = keras.Sequential(
        [keras.Input((3, 32, 32)), keras.layers.AveragePooling2D(4)]
    )
    for call, said in (
        (lambda: models.deepcaps((3, 32, 32), 2), "must be (rows, columns, ch"),
        (
            lambda: models.dr_capsnet((1, 28, 28), 2),
            "must be (rows, columns, c",
        ),
        (
            lambda: models.dr_capsnet(None, 2, backbone=backbone),
            "must have the channels",
        ),
    ):
        with pytest.raises(ValueError) as error:
            call()
        assert said in str(error.value)


def test_a_layer_with_the_channels_first_is_noticed():
    def network(*between):
        last = layers.PrimaryCaps(4, 8, 3)
        pool = keras.layers.MaxPooling2D(2, data_format="channels_first")
        return keras.Sequential(
            [keras.Input((3, 16, 16)), pool, *between, last]
        )

    inside = keras.layers.MaxPooling2D(2, data_format="channels_first")
    for between in (
        (),
        (keras.layers.ReLU(), keras.layers.Dropout(0.1)),
        (keras.Sequential([inside]),),
    ):
        with pytest.raises(
            ValueError, match="'pool.*' first|which has the cha"
        ):
            network(*between)
    network(keras.layers.ReLU(), keras.layers.Permute((2, 3, 1)))

"""What capsule layers do while they are trained."""

import keras
import numpy as np
import pytest

import tfcaps
from training import networks
from training.activity import Activity


def built(name, shape, *, train):
    model = networks.build(name, shape, 3)
    rng = np.random.default_rng(0)
    images = rng.random((6, *shape), dtype=np.float32)
    if train:
        model.compile(keras.optimizers.Adam(), tfcaps.losses.MarginLoss())
        model.fit(images, np.arange(6) % 3, batch_size=3, epochs=2, verbose=0)
    return model, images


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "train", "layers"),
    [
        ("dr_capsnet_small", True, ["primary_caps", "class_caps"]),
        # What takes long to compile is measured as it was built.
        ("gamma_capsnet", False, ["primary_caps", "hidden_caps", "class_caps"]),
        (
            "em_capsnet",
            False,
            ["primary_caps", "conv_caps1", "conv_caps2", "class_caps"],
        ),
    ],
)
def test_each_capsule_layer_is_measured(name, train, layers):
    model, images = built(name, (20, 20, 1), train=train)
    found = Activity(model).measure(images)
    assert list(found) == layers
    for values in found.values():
        assert 0.0 <= values["silent"] <= 1.0
        assert 0.0 < values["activation"] <= 1.0
    assert found["class_caps"]["vote_length"] > 0.0
    assert "vote_length" not in found["primary_caps"]


def hand_made(scale):
    """Two capsules of two components, which pixels are, with known votes."""
    images = keras.Input((2, 2, 1), name="images")
    children = keras.layers.Reshape((2, 2))(images)
    layer = tfcaps.layers.ClassCaps(3, 2, use_bias=False, name="class_caps")
    model = keras.Model(images, tfcaps.layers.Length()(layer(children)))
    matrices = scale * np.eye(2, dtype=np.float32)
    shape = layer.weights[0].shape
    layer.weights[0].assign(np.broadcast_to(matrices, shape))
    return model


def test_known_votes_have_their_length():
    pixels = np.float32([[3, 4], [0, 0]]).reshape(1, 2, 2, 1)
    found = Activity(hand_made(2.0)).measure(pixels)
    # One child of length 5 and one of 0, both doubled.
    assert found["class_caps"]["vote_length"] == pytest.approx(5.0, rel=1e-5)
    assert found["class_caps"]["silent"] == 0.0
    silent = Activity(hand_made(0.0)).measure(pixels)["class_caps"]
    assert (silent["silent"], silent["activation"]) == (1.0, pytest.approx(0))

"""Losses of predictions of another shape, of one class, of soft labels."""

import numpy as np
import pytest

import tfcaps
from tests.networks import tiny_capsnet
from tests.tolerance import assert_close
from tfcaps.losses import (
    CounterfactualLoss,
    CouplingLoss,
    MarginLoss,
    SpreadLoss,
)

CLASS_LOSSES = [MarginLoss, SpreadLoss]


@pytest.mark.parametrize("loss", CLASS_LOSSES)
def test_a_forgotten_length_is_named(loss, rng):
    # As many images as classes: the wrong axes would fit each other.
    poses = rng.random((3, 3, 3)).astype("float32")
    message = (
        rf"{loss.__name__} takes predictions \[batch, classes\]\. Received: "
        r"predictions of the shape \(3, 3, 3\)\. .*add the layer "
        r"`tfcaps.layers.Length\(\)`"
    )
    for labels in (np.arange(3), np.eye(3), np.zeros((3, 1))):
        with pytest.raises(ValueError, match=message):
            loss()(labels, poses)


@pytest.mark.parametrize("dtype", ["int32", "float32", "bool"])
@pytest.mark.parametrize("axes", [1, 2])
def test_one_class_is_there_where_its_label_is_1(dtype, axes):
    there = np.array([1, 0]).astype(dtype).reshape((2, 1)[:axes])
    loss = MarginLoss(reduction=None)(there, np.array([[0.9], [0.9]]))
    assert_close(loss, [0.0, 0.5 * 0.8**2])


@pytest.mark.parametrize("loss", [CouplingLoss, CounterfactualLoss])
def test_of_soft_labels_the_largest_is_the_class(loss, rng):
    prediction = rng.random((6, 3, 3)).astype("float32")
    labels = np.array([0, 1, 2, 0, 1, 2])
    one_hot = np.eye(3, dtype="float32")[labels]
    expected = loss(reduction=None)(labels, prediction)
    for soft in (0.9 * one_hot + 1 / 30, one_hot.astype(bool)):
        found = loss(reduction=None)(soft, prediction)
        assert_close(found, expected)


def test_several_classes_and_none_stay_what_they_are(rng):
    prediction = rng.random((3, 4, 3)).astype("float32")
    rows = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 1]], "float32")
    loss = CouplingLoss(reduction=None)
    assert float(loss(rows, prediction)[1]) == 0.0
    np.testing.assert_allclose(
        loss(rows, prediction), loss(rows.astype(int), prediction)
    )


def test_a_network_of_one_class_and_a_decoder_hides_what_is_not_there():
    network = tfcaps.models.with_decoder(tiny_capsnet(1))
    images = np.ones((2, 8, 8, 1), "float32")
    decoder = network.get_layer("reconstruction")
    poses = np.ones((2, 1, 4), "float32")
    shown = decoder(poses, labels=np.array([1, 0]), training=True)
    nothing = decoder.decode(poses, np.zeros((2, 1), "float32"))
    assert_close(shown[1], nothing[1])
    assert np.abs(np.asarray(shown[0]) - np.asarray(nothing[0])).max() > 1e-4
    assert network.predict({"images": images, "labels": None}, verbose=0)

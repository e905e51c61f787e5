"""Decoder: which capsule it sees, and its networks."""

import keras
import numpy as np
import pytest

from tests.tolerance import assert_close
from tfcaps.layers import Decoder

LABELS = np.array([2, 0, 1])
LONGEST = [1, 2, 1]
ONE_HOT = np.eye(3, dtype="float32")[LABELS]


def visible(class_independent=False):
    """Returns a decoder whose image is the vector that it decodes."""
    size = 4 if class_independent else 12
    network = keras.layers.Reshape((1, size, 1))
    return Decoder((1, size, 1), network, class_independent)


@pytest.fixture
def poses(rng):
    """Three samples whose longest capsules are 1, 2 and 1."""
    poses = rng.normal(size=(3, 3, 4)).astype("float32")
    poses[np.arange(3), LONGEST] *= 10
    return poses


@pytest.mark.parametrize(
    ("call", "decoded"),
    [
        ({"labels": LABELS, "training": True}, LABELS),
        ({"labels": LABELS[:, None], "training": True}, LABELS),
        ({"labels": ONE_HOT, "training": True}, LABELS),
        ({"labels": 0.7 * ONE_HOT + 0.1, "training": True}, LABELS),
        ({}, LONGEST),
        ({"training": True}, LONGEST),
        ({"labels": LABELS}, LONGEST),
        ({"activations": ONE_HOT}, LABELS),
        (
            {"activations": ONE_HOT, "labels": np.zeros(3), "training": True},
            [0, 0, 0],
        ),
    ],
)
def test_labels_choose_in_training_and_the_longest_otherwise(
    call, decoded, poses
):
    chosen = poses * np.eye(3)[decoded][:, :, None]  # all others are zero
    for is_independent in (False, True):
        vectors = visible(is_independent)(poses, **call)
        expected = chosen.sum(axis=1) if is_independent else chosen
        assert_close(np.reshape(vectors, expected.shape), expected)


@pytest.mark.parametrize(
    ("network", "sizes"),
    [
        ("deconvolution", [(4, 8), (28, 28), (36, 36)]),
        ("upsampling", [(24, 24), (48, 32)]),
        ("dense", [(3, 5)]),
    ],
)
def test_network_makes_images_whatever_the_setting_of_keras(
    network, sizes, poses
):
    try:
        for data_format in ("channels_first", "channels_last"):
            keras.config.set_image_data_format(data_format)
            for rows, columns in sizes:
                images = Decoder((rows, columns, 2), network)(50 * poses)
                images = np.asarray(images)
                assert images.shape == (3, rows, columns, 2)
                assert np.all(images >= 0)
                assert np.all(images <= 1) or network == "deconvolution"
    finally:
        keras.config.set_image_data_format("channels_last")


@pytest.mark.parametrize("trainable", [True, False])
def test_weights_are_not_to_be_pruned(trainable):
    decoder = Decoder((8, 8, 1), "deconvolution", trainable=trainable)
    decoder(np.ones((1, 3, 4), "float32"))
    decoder.trainable = True
    weights = decoder.trainable_weights
    assert len(weights) == 2 + 2 + 8
    assert not any(weight.prunable for weight in weights)


@pytest.mark.parametrize("class_independent", [False, True])
def test_perturbed_dimension_alone_moves(class_independent, poses):
    decoder = visible(class_independent)
    plain = np.reshape(decoder(poses), (3, -1, 4))
    offsets = np.array([-0.5, 0.0, 2.0])
    for sample, longest in zip(range(3), LONGEST, strict=True):
        found = np.asarray(decoder.perturbed(poses[sample], offsets))
        expected = np.tile(plain[sample], (4, 3, 1, 1))
        for d in range(4):
            place = 0 if class_independent else longest
            expected[d, :, place, d] += offsets
        assert found.shape == (4, 3, 1, plain[0].size, 1)
        assert_close(found.reshape(expected.shape), expected, atol=1e-5)

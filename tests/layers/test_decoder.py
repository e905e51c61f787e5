"""Decoder: which capsule it sees, and its networks."""

import keras
import numpy as np
import pytest

from tests.tolerance import assert_close
from tfcaps.layers import Decoder, perturb_dimensions

LABELS = np.array([2, 0, 1])


def visible(classes=3, dim=4, class_independent=False):
    """Returns a decoder whose image is the vector that it decodes."""
    size = dim if class_independent else classes * dim
    network = keras.layers.Reshape((1, size, 1))
    return Decoder((1, size, 1), network, class_independent)


@pytest.fixture
def poses(rng):
    """Three samples whose longest capsules are 1, 2 and 1."""
    poses = rng.normal(size=(3, 3, 4)).astype("float32")
    for sample, longest in enumerate((1, 2, 1)):
        poses[sample, longest] *= 10
    return poses


def seen(decoder, poses, **call):
    """Returns the decoded vectors, as capsules."""
    return np.reshape(decoder(poses, **call), (len(poses), -1, 4))


LONGEST = [1, 2, 1]
ONE_HOT = np.eye(3, dtype="float32")[LABELS]


@pytest.mark.parametrize(
    ("call", "decoded"),
    [
        ({"labels": LABELS, "training": True}, LABELS),
        ({"labels": LABELS[:, None], "training": True}, LABELS),
        ({"labels": ONE_HOT, "training": True}, LABELS),
        ({}, LONGEST),
        ({"training": True}, LONGEST),
        ({"labels": LABELS}, LONGEST),
        ({"labels": LABELS, "training": False}, LONGEST),
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
    # All other capsules are zero.
    expected = poses * np.eye(3)[decoded][:, :, None]
    assert_close(seen(visible(), poses, **call), expected)


def test_class_independent_decoder_sees_one_pose_alone(poses):
    decoder = visible(class_independent=True)
    decoded = seen(decoder, poses, labels=LABELS, training=True)
    assert_close(decoded[:, 0], poses[np.arange(3), LABELS])


@pytest.mark.parametrize("class_independent", [False, True])
def test_class_is_known_only_from_the_place(class_independent, poses):
    moved = np.roll(poses, 1, axis=1)
    decoder = Decoder((4, 4, 1), class_independent=class_independent)
    same = np.allclose(decoder(poses), decoder(moved), atol=1e-5)
    assert same == class_independent


@pytest.fixture(params=["channels_last", "channels_first"])
def data_format(request):
    keras.config.set_image_data_format(request.param)
    yield
    keras.config.set_image_data_format("channels_last")


@pytest.mark.parametrize(
    ("network", "sizes"),
    [
        ("deconvolution", [(4, 8), (28, 28), (32, 32), (40, 40), (36, 36)]),
        ("upsampling", [(24, 24), (48, 32)]),
        ("dense", [(3, 5)]),
    ],
)
def test_network_makes_images_whatever_the_setting_of_keras(
    network, sizes, poses, data_format
):
    for rows, columns in sizes:
        images = Decoder((rows, columns, 2), network)(50 * poses)
        assert tuple(images.shape) == (3, rows, columns, 2)
        images = np.asarray(images)
        assert np.all(images >= 0)
        assert np.all(images <= 1) or network == "deconvolution"


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.layers.Dense(12),
        lambda: keras.Sequential([keras.layers.Dense(12)]),
    ],
    ids=["layer", "sequential"],
)
def test_own_network_is_trained_saved_and_loaded(make, poses, tmp_path):
    inputs = keras.Input((3, 4))
    model = keras.Model(inputs, Decoder((2, 3, 2), make())(inputs))
    model.compile("sgd", "mse", jit_compile=False)
    before = model.get_weights()
    model.train_on_batch(poses, np.ones((3, 2, 3, 2)))
    assert len(before) == 2
    assert np.any(before[0] != model.get_weights()[0])
    model.save(tmp_path / "decoder.keras")
    loaded = keras.models.load_model(tmp_path / "decoder.keras")
    assert_close(loaded(poses), model(poses))


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
    decoder = visible(class_independent=class_independent)
    plain = seen(decoder, poses)
    images = perturb_dimensions(decoder, poses, [-0.5, 0.0, 2.0])
    assert images.shape == (3, 4, 3, 1, plain[0].size, 1)
    images = images.reshape(3, 4, 3, -1, 4)
    assert_close(images[:, :, 1], np.stack([plain] * 4, axis=1))
    for b, longest in enumerate((1, 2, 1)):
        place = 0 if class_independent else longest
        for dimension, n in np.ndindex(4, 3):
            expected = np.array(plain[b])
            expected[place, dimension] += (-0.5, 0.0, 2.0)[n]
            assert_close(images[b, dimension, n], expected, atol=1e-5)


def test_dimensions_are_perturbed_by_the_published_offsets(poses):
    decoder = Decoder((3, 5, 2))
    images = perturb_dimensions(decoder, keras.ops.convert_to_tensor(poses))
    expected = perturb_dimensions(decoder, poses, np.linspace(-0.25, 0.25, 11))
    assert_close(images, expected, atol=1e-5)

"""Classes told by maps of where parts tell for them, as handwriting is."""

import keras
import numpy as np
import pytest

from examples.handwriting import train
from tests.tolerance import assert_all_close, assert_close
from tfcaps import parts, rem
from training.images import Images, Split

ROWS, COLUMNS, TYPES, CLASSES = 6, 7, 2, 3


def test_maps_add_up_to_the_odds_of_classes(rng):
    """Expected values are those of loops over places."""
    grid = (2, ROWS, COLUMNS, TYPES)
    places = rng.uniform(0, 12, (*grid, 2)).astype("float32")
    active = rng.uniform(size=grid).astype("float32") ** 4
    active[1] *= 0.01
    layer = parts.MapCaps(CLASSES, 0.3, width=1.5, epsilon=0.1, stride=2)
    layer.build(places.shape)
    layer.maps.assign(rng.normal(0.0, 0.1, layer.maps.shape))
    smooth = np.zeros(layer.maps.shape)
    for at in np.ndindex(ROWS, COLUMNS):
        for near in np.ndindex(ROWS, COLUMNS):
            square = 4.0 * np.sum(np.square(np.subtract(at, near)))
            weight = 10 * np.exp(-square / 4.5)
            smooth[at] += weight * np.asarray(layer.maps)[near]
    told = active.reshape(2, -1, 1) * smooth.reshape(1, -1, CLASSES)
    odds = 0.1 * np.exp(told.sum(axis=1))
    shares = odds / (1.0 + odds.sum(axis=1, keepdims=True))
    positive = np.maximum(told, 0.0)
    tells = positive / (positive + 0.3)
    poses = np.einsum("bij,bid->bjd", tells, places.reshape(2, -1, 2))
    poses /= tells.sum(axis=1)[..., None]
    decided = shares == shares.max(axis=1, keepdims=True)
    decided &= shares > 1.0 - shares.sum(axis=1, keepdims=True)
    assert decided.sum(axis=1).tolist() == [1, 0]  # or nothing
    every = dict.fromkeys(("activations", "couplings", "evidence"), True)
    every = {f"return_{name}": value for name, value in every.items()}
    for factors, training in ((shares, True), (decided, False)):
        outputs = layer(places, active, **every, training=training)
        couplings = factors[:, None] * tells
        expected = (poses, shares, np.log(shares), couplings)
        assert_all_close(outputs, expected, atol=1e-3)
    assert_close(layer.slots, smooth.max(axis=(0, 1)) > 0.3)


@pytest.mark.slow
def test_maps_learn_where_types_tell_for_a_class():
    """Classes differ by the place of one part."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    labels = np.arange(256) % 2
    images = 0.05 * rng.uniform(size=(256, 16, 16, 1)).astype("float32")
    for image, label in zip(images, labels, strict=True):
        row, column = rng.integers(2, 6) + 8 * label, rng.integers(2, 12)
        image[row : row + 3, column : column + 3, 0] = 1.0
    network, training = train.networks((16, 16, 1), 2, 2)
    train.fit(training, Split(Images(images), labels), epochs=30, seed=0)
    trees = rem.trees(network, images)
    assert np.mean(trees.predicted == labels) > 0.95
    assert trees.leaves.max() <= 2
    used = rem.faithfulness(network, images, samples=50, draws=1)
    assert used.necessity["zero"] > 0.9
    assert used.necessity_active["zero"] < 0.1

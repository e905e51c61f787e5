"""How far votes lie from parents, and the key of each image."""

import keras
import numpy as np
import pytest

from tests.networks import SMALL_NETWORKS, tiny_capsnet
from tfcaps import rem
from tfcaps.ops import squash

IMAGES = np.random.default_rng(1).random((7, 8, 8, 1), dtype=np.float32)


def sharpened(model):
    """Returns the model with weights that make long votes, on any backend."""
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.normal(0.0, 0.3, weight.shape))
    weight = model.get_layer("class_caps").transformation
    weight.assign(10.0 * weight)
    return model


@pytest.fixture(scope="module")
def model():
    return sharpened(tiny_capsnet())


def votes_of(model, images):
    """Returns votes `[b, i, j, d]`."""
    inside = keras.Model(model.input, model.get_layer("primary_caps").output)
    children = np.asarray(inside(images)).reshape(len(images), -1, 4)
    matrices = np.asarray(model.get_layer("class_caps").transformation)
    return np.einsum("bik,ijkd->bijd", children, matrices)


def distances_by_hand(model, images):
    """Returns distances `[b, t, i, j]` of three iterations."""
    votes = votes_of(model, images)
    bias = np.asarray(model.get_layer("class_caps").bias)
    logits = np.zeros(votes.shape[:3])
    found = []
    for _ in range(3):
        shares = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        sums = np.einsum("bij,bijd->bjd", shares, votes) + bias
        poses = np.asarray(squash(sums))
        found.append(np.linalg.norm(votes - poses[:, None], axis=-1))
        logits = logits + np.einsum("bijd,bjd->bij", votes, poses)
    return np.stack(found, axis=1)


@pytest.mark.parametrize("batch_size", [7, 3])
def test_distances_after_each_iteration_are_those_by_hand(model, batch_size):
    by_hand = distances_by_hand(model, IMAGES)
    found = rem.vote_distances(model, IMAGES, batch_size=batch_size)
    np.testing.assert_allclose(
        found.means, by_hand.mean(axis=(0, 2, 3)), rtol=1e-4
    )
    assert np.ptp(found.means) > 1e-3
    first = by_hand[:batch_size]
    np.testing.assert_allclose(
        found.edges[[0, -1]], [first.min(), first.max()], rtol=1e-3
    )
    clipped = np.clip(by_hand, found.edges[0], found.edges[-1])
    for t in range(3):
        expected = np.histogram(clipped[:, t], found.edges)[0]
        # A distance on an edge may fall to either side.
        assert np.abs(found.counts[t] - expected).sum() <= 4
        assert found.counts[t].sum() == by_hand[:, t].size


def test_distances_from_the_predicted_class_alone(model):
    by_hand = distances_by_hand(model, IMAGES)
    classes = np.argmax(model(IMAGES), axis=-1)
    own = by_hand[np.arange(7), :, :, classes]
    found = rem.vote_distances(model, IMAGES, towards="predicted", bins=9)
    np.testing.assert_allclose(found.means, own.mean(axis=(0, 2)), rtol=1e-4)
    assert found.counts.shape == (3, 9)
    assert found.counts[0].sum() == 7 * 8


def test_more_iterations_than_the_layer_has(model):
    found = rem.vote_distances(model, IMAGES, iterations=5)
    three = rem.vote_distances(model, IMAGES)
    assert found.counts.shape == (5, 50)
    np.testing.assert_allclose(found.means[:3], three.means, rtol=1e-6)


def test_routing_that_does_not_iterate_has_one_histogram():
    model = SMALL_NETWORKS["efficient_capsnet"]()
    images = np.random.default_rng(0).random((2, 12, 12, 1), np.float32)
    assert rem.vote_distances(model, images).counts.shape == (1, 50)
    with pytest.raises(ValueError, match="does not iterate. Received: it"):
        rem.vote_distances(model, images, iterations=2)


@pytest.mark.parametrize("routing", ["em", "scaled_distance"])
def test_other_routings_are_iterated_too(routing):
    model = sharpened(tiny_capsnet(routing=routing))
    found = rem.vote_distances(model, IMAGES[:3])
    poses = np.asarray(rem.capsule_outputs(model)(IMAGES[:3])["poses"])
    votes = votes_of(model, IMAGES[:3])
    last = np.linalg.norm(votes - poses[:, None], axis=-1)
    np.testing.assert_allclose(found.means[-1], last.mean(), rtol=1e-4)
    assert found.means[0] != pytest.approx(found.means[-1], rel=1e-3)


def test_mistakes_of_vote_distances_are_explained(model):
    with pytest.raises(ValueError, match="`towards` must be one of .*'label'"):
        rem.vote_distances(model, IMAGES, towards="label")
    weight = model.get_layer("class_caps").transformation
    silent = tiny_capsnet()
    one = np.arange(8)[:, None, None, None] == 2
    silent.set_weights(model.get_weights())
    silent.get_layer("class_caps").transformation.assign(
        np.where(one, 0.0, weight)
    )
    with pytest.raises(ValueError, match="is a CompactCaps. Vote distances"):
        rem.vote_distances(rem.compact(silent), IMAGES)


@pytest.mark.parametrize(
    "levels, mode", [(2, "midtread"), (6, "midtread"), ([7], "midrise")]
)
def test_keys_of_images_make_the_dictionary_of_the_report(levels, mode):
    model = sharpened(tiny_capsnet())
    bias = model.get_layer("class_caps").bias
    # No ties between classes that get nothing else.
    bias.assign(np.array([[0.1], [0.2], [0.15]]) + np.zeros(bias.shape))
    report = rem.evaluate(model, (IMAGES, np.zeros(7, int)), levels, mode=mode)
    found = rem.trees(model, IMAGES, levels, mode=mode, batch_size=3)
    keys, predicted = found.codes, found.predicted
    assert keys.shape == (7, 8) and keys.dtype == np.uint8
    trees = rem.CouplingDictionary(3)
    trees.update(keys, predicted)
    assert sum(trees.num_samples) == 7
    if levels == 2:  # so coarse that predictions change
        assert np.any(predicted != np.argmax(model(IMAGES), axis=-1))
    else:
        assert max(trees.num_keys) > 1
    for j in range(3):
        np.testing.assert_array_equal(trees.keys(j), report.dictionary.keys(j))
        assert trees.counts(j) == report.dictionary.counts(j)

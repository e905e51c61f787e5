"""A shift of the object changes the key of places, not the key of types."""

import keras
import numpy as np

from tfcaps import layers, rem
from tfcaps.ops import quantize

LEVELS = 11
STRIDE, KERNEL, TYPES, DIM, CLASSES = 2, 4, 3, 2, 3
# Shifted by cells; all windows that see the object are within the grid.
PLACES = ((4, 4), (4 + STRIDE, 4), (4, 4 + STRIDE), (4 + STRIDE, 4 + STRIDE))


def network():
    """Returns a network for 12x12 pixels whose matrices are shared."""
    images = keras.Input((12, 12, 1), name="images")
    children = layers.PrimaryCaps(TYPES, DIM, KERNEL, STRIDE, "valid")(images)
    poses = layers.ClassCaps(CLASSES, 4, 3, use_bias=False, share="type")(
        children
    )
    model = keras.Model(images, layers.Length()(poses), name="hand_made")
    rng = np.random.default_rng(4)
    for weight in model.weights:
        bias = weight.name == "bias"
        scale = 0.0 if bias else {4: 0.5}.get(len(weight.shape), 3.0)
        weight.assign(rng.normal(0.0, scale, weight.shape))
    return model


def squash(vectors):
    squared = np.sum(vectors**2, axis=-1, keepdims=True)
    return vectors * np.sqrt(squared) / (1.0 + squared)


def couplings_by_hand(model, image):
    """Returns couplings `[i, j]` of an image, by loops."""
    *convolution, matrices = (np.array(w, float) for w in model.get_weights())
    kernel = convolution[0].reshape(KERNEL, KERNEL, TYPES, DIM)
    matrices = matrices.reshape(TYPES, CLASSES, DIM, 4)
    side = (12 - KERNEL) // STRIDE + 1
    votes = []
    for row in range(side):
        for column in range(side):
            top, left = STRIDE * row, STRIDE * column
            window = image[top : top + KERNEL, left : left + KERNEL, 0]
            for t in range(TYPES):
                pose = np.zeros(DIM)
                for y in range(KERNEL):
                    for x in range(KERNEL):
                        pose += window[y, x] * kernel[y, x, t]
                pose = squash(pose)
                votes.append(np.einsum("k,jkd->jd", pose, matrices[t]))
    votes = np.array(votes)  # [i, j, d]
    logits = np.zeros(votes.shape[:2])
    for _ in range(3):
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        couplings = shares / shares.sum(axis=1, keepdims=True)
        poses = squash(np.einsum("ij,ijd->jd", couplings, votes))
        logits = logits + np.einsum("ijd,jd->ij", votes, poses)
    return couplings


def scene(row, column):
    """An object of 2x2 pixels on a ground of zeros."""
    image = np.zeros((12, 12, 1), "float32")
    image[row : row + 2, column : column + 2, 0] = [[0.9, 0.4], [0.3, 0.7]]
    return image


def test_shift_by_a_cell_changes_the_key_of_places_and_not_that_of_types():
    model = network()
    images = np.stack([scene(*place) for place in PLACES])
    found = rem.trees(model, images, LEVELS)
    keys, types, predicted = found.codes, found.type_codes, found.predicted
    assert keys.shape == (4, 5 * 5 * TYPES) and types.shape == (4, TYPES)
    assert len(np.unique(keys, axis=0)) == 4
    assert len(np.unique(types, axis=0)) == 1
    assert len({*predicted.tolist()}) == 1
    # Not because nothing is routed: empty children have the code of 1/3.
    uniform = int(quantize(1 / 3, LEVELS))
    assert types.max() > uniform + 1
    assert np.count_nonzero(keys[0] != uniform) > TYPES
    for image, key in zip(images, keys, strict=True):
        couplings = couplings_by_hand(model, image)
        towards = (LEVELS - 1) * couplings[:, predicted[0]]
        # Far enough from the edges for float32.
        assert np.min(np.abs(towards % 1 - 0.5)) > 1e-3
        np.testing.assert_array_equal(key, np.rint(towards))
        by_hand = [max(key[t::TYPES]) for t in range(TYPES)]
        np.testing.assert_array_equal(types[0], by_hand)


def test_shifted_images_have_entropy_in_places_and_none_in_types():
    model = network()
    images = np.stack([scene(*place) for place in PLACES])
    predicted = model.predict(images, verbose=0).argmax(-1)
    report = rem.evaluate(model, (images, predicted), LEVELS)
    assert report.dictionary.entropy_bits.max() == 2.0  # four keys
    assert report.type_dictionary.entropy_bits.tolist() == [0.0] * CLASSES


def test_shift_by_less_than_a_cell_may_change_both():
    model = network()
    images = np.stack([scene(4, 4), scene(5, 4)])
    types = rem.trees(model, images, 101).type_codes
    assert np.any(types[0] != types[1])

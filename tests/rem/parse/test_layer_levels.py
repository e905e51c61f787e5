"""Levels of each layer of a network with several routed layers."""

import keras
import numpy as np
import pytest

from tests import reference
from tests.networks import SMALL_NETWORKS, draw_weights, outputs_of
from tfcaps import rem
from tfcaps.layers import ClassCaps, FcCaps, Length
from tfcaps.routing import DynamicRouting

HIDDEN, LAST = 6, 11


@pytest.fixture(scope="module")
def model():
    return draw_weights(
        SMALL_NETWORKS["multilayer_capsnet"](),
        2,
        hidden_caps1=4.0,
        class_caps=2.0,
    )


@pytest.fixture(scope="module")
def images(model):
    shape = (12, *model.input_shape[1:])
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def routed(layer, children, levels):
    """Returns poses and codes `[b, i, j]` of a layer with rounded couplings."""
    weight = layer.transformation.numpy().astype("float64")
    bias = layer.bias.numpy().astype("float64")
    votes = np.einsum("ijkd,bik->bijd", weight, children)
    routing = DynamicRouting(3, levels=levels)
    poses, _, couplings = reference.route(routing, votes, bias=bias)
    return poses, np.rint(couplings * (levels - 1)).astype(int)


@pytest.fixture(scope="module")
def by_hand(model, images):
    """Returns class lengths and codes with 6 and 11 levels."""
    primary = model.get_layer("primary_caps")
    poses = keras.Model(model.input, primary.output)(images)
    poses = np.reshape(poses, (len(images), -1, primary.dim)).astype("float64")
    hidden, _ = routed(model.get_layer("hidden_caps1"), poses, HIDDEN)
    classes, codes = routed(model.get_layer("class_caps"), hidden, LAST)
    return np.linalg.norm(classes, axis=-1), codes


def test_every_layer_is_rounded_to_its_own_levels(model, images, by_hand):
    copy = rem.quantize_couplings(model, tuple(np.array([HIDDEN, LAST])))
    assert copy.get_layer("hidden_caps1").routing.levels == HIDDEN
    assert copy.get_layer("class_caps").routing.levels == LAST
    lengths, _ = by_hand
    np.testing.assert_allclose(copy(images), lengths, atol=1e-5)


def keys_of(trees):
    return [trees.keys(j).tolist() for j in range(trees.num_classes)]


@pytest.mark.slow
def test_dictionary_is_that_of_the_last_layer(model, images, by_hand):
    lengths, codes = by_hand
    labels = np.arange(len(images)) % 3
    report = rem.evaluate(model, (images, labels), (HIDDEN, LAST))
    predicted = lengths.argmax(-1)
    assert report.accuracy_quantized == np.mean(predicted == labels)
    trees = rem.CouplingDictionary(3)
    codes = codes[np.arange(len(codes)), :, predicted]
    trees.update(codes, predicted)
    assert report.dictionary.key_length == codes.shape[1]
    assert np.all(trees.num_keys > 0)
    assert keys_of(report.dictionary) == keys_of(trees)
    assert report.levels == LAST
    expected = {"hidden_caps1": HIDDEN, "class_caps": LAST}
    assert report.levels_per_layer == expected
    # The levels of either layer make a difference.
    for other in ((3, LAST), (HIDDEN, 9)):
        changed = rem.evaluate(model, (images, labels), other).dictionary
        assert keys_of(changed) != keys_of(report.dictionary)


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        (
            (5,),
            r"one for each of the 2 layers \['hidden_caps1', 'class_caps'\]. "
            r"Received: levels=\(5,\)",
        ),
        ((5, 5, 5), "one for each of the 2 layers"),
        ((5, 2.5), "at least 2, and whole. Received: levels=2.5"),
    ],
)
def test_levels_that_do_not_fit_are_an_error(levels, message, model):
    with pytest.raises(ValueError, match=message):
        rem.quantize_couplings(model, levels)
    with pytest.raises(ValueError, match=r"\[2, 256\].* Received: levels=300"):
        rem.Evaluator(model, (300, 11))


def test_layer_that_is_routed_twice_keeps_its_couplings_apart(rng):
    images = keras.Input((6, 4), name="images")
    hidden = FcCaps(6, 4, name="hidden")
    poses = ClassCaps(3, 4, name="classes")(hidden(hidden(images)))
    model = keras.Model(images, Length()(poses))
    data = rng.normal(size=(5, 6, 4)).astype("float32")
    report = rem.evaluate(model, (data, np.zeros(5, int)), 3)
    copy = rem.quantize_couplings(model, 3)
    predicted = np.argmax(outputs_of(copy, data), axis=-1)
    assert report.accuracy_quantized == np.mean(predicted == 0)
    # From the leaves through both calls to the classes.
    assert len(rem.trees(model, data).parse_tree().activations) == 4

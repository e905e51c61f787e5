"""Couplings, rounding and evaluation on every kind of network."""

from functools import partial

import keras
import numpy as np
import pytest

import tfcaps
from tests.networks import (
    SMALL_NETWORKS,
    images_of,
    named_outputs,
    outputs_of,
    tiny_capsnet,
)
from tests.tolerance import SUMS, assert_all_equal, assert_close
from tfcaps import rem
from tfcaps.layers import (
    ConvCaps,
    ConvCaps3D,
    Length,
    PrimaryCaps,
)
from tfcaps.ops import dequantize, quantize
from tfcaps.routing import EMRouting, RegularizedRouting

NETWORKS = {
    "decoder": partial(tiny_capsnet, decoder=True),
    "regularized": partial(tiny_capsnet, routing="regularized"),
    "regularized-decoder": partial(
        tiny_capsnet, routing=RegularizedRouting("l1"), decoder=True
    ),
    "em": partial(
        SMALL_NETWORKS["em_capsnet"], routing=EMRouting(2), decoder=True
    ),
    "deepcaps": partial(SMALL_NETWORKS["deepcaps"], decoder=True),
    "efficient": partial(SMALL_NETWORKS["efficient_capsnet"], decoder=True),
    "efficient_conv": SMALL_NETWORKS["efficient_conv_capsnet"],
    "multilayer": SMALL_NETWORKS["multilayer_capsnet"],
}
SLOW = ("deepcaps", "efficient_conv", "regularized-decoder")
EVERY = [
    pytest.param(name, marks=pytest.mark.slow if name in SLOW else ())
    for name in NETWORKS
]


@pytest.fixture(scope="module")
def built():
    """Returns a function that builds each network once, with sharp votes."""
    networks = {}

    def get(name):
        if name not in networks:
            keras.utils.set_random_seed(0)
            model = NETWORKS[name]()
            weight = model.get_layer("class_caps").transformation
            if "em" not in name:
                weight.assign(10.0 * weight)
            networks[name] = model
        return networks[name]

    return get


@pytest.mark.parametrize("name", EVERY)
def test_encoder_and_couplings_share_the_network(name, built):
    model = built(name)
    images = images_of(model, 7)
    expected = named_outputs(model, images)["lengths"]
    classifier = rem.classifier(model)
    assert classifier.name == model.name
    assert len(classifier.inputs) == len(classifier.outputs) == 1
    assert "reconstruction" not in [layer.name for layer in classifier.layers]
    ours = {id(weight) for weight in classifier.weights}
    assert ours <= {id(weight) for weight in model.weights}
    np.testing.assert_allclose(classifier(images), expected, atol=1e-5)
    shown = rem.capsule_outputs(model)(images)
    np.testing.assert_allclose(shown["lengths"], expected, atol=1e-5)
    layer = model.get_layer("class_caps")
    poses, *_ = keras.tree.flatten(layer.input)
    children = np.prod(poses.shape[1:-1])
    assert shown["couplings"].shape == (7, children, 3)
    assert shown["poses"].shape == (7, 3, layer.dim)
    if not layer.routing.explicit_activations:
        np.testing.assert_allclose(
            np.linalg.norm(shown["poses"], axis=-1), expected, atol=1e-5
        )
    totals = np.sum(shown["couplings"], axis=-1)
    np.testing.assert_allclose(totals, 1.0, atol=1e-5)


@pytest.mark.parametrize("name", EVERY)
def test_rounded_copy_changes_class_couplings(name, built):
    model = built(name)
    images = images_of(model, 7)
    rounded = rem.quantize_couplings(model, 5)
    assert_all_equal(model.weights, rounded.weights)
    for layer in rounded.layers:
        if hasattr(layer, "routing"):
            levels = None if isinstance(layer, ConvCaps3D) else 5
            assert layer.routing.levels == levels
    couplings = rem.capsule_outputs(rounded)(images)["couplings"]
    codes = quantize(couplings, 5)
    np.testing.assert_allclose(couplings, dequantize(codes, 5), atol=SUMS)


def test_network_that_ends_in_conv_caps_shows_couplings_but_has_no_trees():
    images = keras.Input((8, 8, 1), name="images")
    children = PrimaryCaps(2, 4, 4, strides=2)(images)
    poses = ConvCaps(3, 4, 3)(children)
    lengths = Length()(keras.layers.Reshape((3, 4))(poses))
    model = keras.Model(images, lengths)
    data = images_of(model, 7)
    shown = outputs_of(rem.capsule_outputs(model), data)
    assert shown["couplings"].shape == (7, 1, 1, 3, 3, 2, 3)
    assert_close(shown["lengths"], outputs_of(model, data))
    children_differ = "is a ConvCaps, whose children differ"
    for call, said in (
        (lambda: rem.evaluate(model, (data, np.zeros(7, int))), "ConvCaps"),
        (lambda: rem.explanation(model), children_differ),
        (lambda: rem.faithfulness(model, data), children_differ),
        (lambda: rem.trees(model, data), "Trees need class capsules"),
        (lambda: rem.receptive_fields(model), "Received: ConvCaps"),
        (
            lambda: rem.add_couplings(model, counterfactual=True),
            "ends in a ConvCaps",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            call()


def test_several_inputs_or_outputs_need_their_names():
    first, second = (keras.Input((6, 4), name=name) for name in "ab")
    poses = tfcaps.layers.ClassCaps(3, 4)(first + second)
    both, one = {"a": first, "b": second}, tfcaps.layers.ClassCaps(3, 4)(first)
    for model, name in (
        (keras.Model(both, Length()(poses)), "images"),
        (keras.Model(first, {"a": one, "b": Length()(one)}), "lengths"),
    ):
        with pytest.raises(ValueError, match=f"must call one '{name}'. Receiv"):
            rem.classifier(model)

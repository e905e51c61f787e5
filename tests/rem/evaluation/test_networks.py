"""Couplings, rounding and evaluation on every kind of network."""

import keras
import numpy as np
import pytest

import tfcaps
from tests.networks import (
    SMALL_NETWORKS,
    images_of,
    named_outputs,
    outputs_of,
    sharpened,
    tiny_capsnet,
)
from tests.tolerance import assert_all_equal, assert_close
from tfcaps import rem
from tfcaps.layers import ConvCaps, ConvCaps3D, Length, PrimaryCaps
from tfcaps.ops import dequantize, quantize
from tfcaps.routing import RegularizedRouting

SLOW = ("deepcaps", "efficient_conv_capsnet")
NAMES = ("dr_capsnet", "em_capsnet", "efficient_capsnet", "multilayer_capsnet")


@pytest.mark.parametrize(
    "name",
    [
        *("regularized", *NAMES),
        *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW),
    ],
)
def test_classifier_couplings_and_rounded_copy_are_of_the_network(name):
    if name == "regularized":
        routing = RegularizedRouting("l1")
        model = tiny_capsnet(name=name, routing=routing, decoder=True)
    else:
        model = SMALL_NETWORKS[name](decoder=True)
    if "em" not in name:
        sharpened(model, factor=10.0)
    images = images_of(model, 7)
    expected = named_outputs(model, images)["lengths"]
    classifier = rem.classifier(model)
    assert classifier.name == model.name
    assert len(classifier.inputs) == len(classifier.outputs) == 1
    assert "reconstruction" not in [layer.name for layer in classifier.layers]
    ours = {id(weight) for weight in classifier.weights}
    assert ours <= {id(weight) for weight in model.weights}
    assert_close(classifier(images), expected, atol=1e-5)
    shown = rem.capsule_outputs(model)(images)
    assert_close(shown["lengths"], expected, atol=1e-5)
    layer = model.get_layer("class_caps")
    poses, *_ = keras.tree.flatten(layer.input)
    children = np.prod(poses.shape[1:-1])
    assert shown["couplings"].shape == (7, children, 3)
    assert shown["poses"].shape == (7, 3, layer.dim)
    if not layer.routing.explicit_activations:
        lengths = np.linalg.norm(shown["poses"], axis=-1)
        assert_close(lengths, expected, atol=1e-5)
    totals = np.sum(shown["couplings"], axis=-1)
    assert_close(totals, np.ones_like(totals), atol=1e-5)
    rounded = rem.quantize_couplings(model, 5)
    assert_all_equal(model.weights, rounded.weights)
    for layer in rounded.layers:
        if hasattr(layer, "routing"):
            levels = None if isinstance(layer, ConvCaps3D) else 5
            assert layer.routing.levels == levels
    couplings = rem.capsule_outputs(rounded)(images)["couplings"]
    assert_close(couplings, dequantize(quantize(couplings, 5), 5))


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

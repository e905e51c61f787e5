"""Magnitude masks, and what sparsity is a share of."""

import re

import keras
import numpy as np
import pytest

from tests.golden import all_parameter_counts, load
from tests.networks import SMALL_NETWORKS, tiny_capsnet
from tfcaps import models, rem
from tfcaps.rem.pruning.masks import magnitude_masks, magnitude_threshold


def size(weights):
    return sum(weight.numpy().size for weight in weights)


def fill(model):
    """Sets every weight to 1, since biases start as zeros."""
    for weight in model.weights:
        weight.assign(np.ones(weight.shape))


def share(model, weight, scope):
    """Returns over how many parameters the zeros of a weight are shared."""
    fill(model)
    weight.assign(np.zeros(weight.shape))
    return size([weight]) / rem.sparsity(model, scope=scope)


def test_denominators_are_those_of_the_published_network():
    (name,) = [
        name
        for name in all_parameter_counts()
        if name.startswith("DR-CapsNet MNIST (FC decoder)")
    ]
    counts = all_parameter_counts()[name]
    tensors = {
        key: tensor["count"]
        for key, tensor in counts["per_tensor"].items()
        if not key.startswith("decoder")
    }
    model = models.with_decoder(models.dr_capsnet((28, 28, 1), 10))
    kernel = model.get_layer("conv").kernel
    weights = sum(n for key, n in tensors.items() if key.endswith("weight"))
    expected = {
        "targets": weights,
        "paper": sum(tensors.values()),
        "all": counts["total"],
    }
    assert expected["targets"] < expected["paper"] < expected["all"]
    for scope, count in expected.items():
        assert share(model, kernel, scope) == pytest.approx(count)
    classifier = rem.classifier(model)
    for scope in ("paper", "all"):
        assert share(classifier, kernel, scope) == pytest.approx(
            expected["paper"]
        )


@pytest.mark.parametrize(
    ("name", "kernel", "others"),
    [
        ("efficient_capsnet", "conv1", ["norm1", "norm2", "norm3", "norm4"]),
        ("deepcaps", "conv", ["norm"]),
        ("em_capsnet", "conv", []),
    ],
)
def test_scope_of_the_paper_is_all_but_normalisation(name, kernel, others):
    # `ConvCaps3D` of DeepCaps has a bias beside the convolution in it.
    model = SMALL_NETWORKS[name]()
    left_out = size(
        w for layer in others for w in model.get_layer(layer).weights
    )
    weight = model.get_layer(kernel).kernel
    expected = model.count_params() - left_out
    assert share(model, weight, "paper") == pytest.approx(expected)


def test_zeros_outside_of_a_scope_do_not_count():
    model = tiny_capsnet(decoder=True)
    fill(model)
    bias = model.get_layer("conv").bias
    bias.assign(np.zeros(bias.shape))
    assert rem.sparsity(model) == 0.0
    classifier = rem.classifier(model)
    expected = size([bias]) / classifier.count_params()
    assert rem.sparsity(model, scope="paper") == pytest.approx(expected)
    for weight in model.get_layer("reconstruction").weights:
        weight.assign(np.zeros(weight.shape))
    assert rem.sparsity(model, scope="paper") == pytest.approx(expected)
    assert rem.sparsity(model, scope="all") > expected
    assert rem.sparsity(classifier, scope="all") == pytest.approx(expected)
    report = rem.evaluate(model, (np.zeros((4, 8, 8, 1)), np.zeros(4, int)))
    found = [report.sparsity, report.sparsity_paper]
    assert found == pytest.approx([0.0, expected])
    nonzero = report.nonzero_parameters / report.total_parameters
    assert nonzero == pytest.approx(1 - expected)


def test_unknown_scope_is_an_error():
    message = r"`scope` must be one of .*'paper'.* Received: scope='most'"
    with pytest.raises(ValueError, match=message):
        rem.sparsity(tiny_capsnet(), scope="most")
    with pytest.raises(ValueError, match="has no parameters"):
        rem.sparsity(keras.Sequential([keras.Input((3,))]), scope="all")


_PRUNING = load("11_pruning")
_CASES = [
    match.groups()
    for name in _PRUNING
    if (match := re.fullmatch(r"mask_(.+)_s(\d+(?:p\d+)?)", name))
]


@pytest.mark.parametrize(("weights", "sparsity"), _CASES)
def test_masks_and_thresholds_equal_those_of_tfmot(weights, sparsity):
    array = _PRUNING[f"mask_{weights}_weights"]
    share = float(sparsity.replace("p", "."))
    name = f"mask_{weights}_s{sparsity}"
    (mask,) = magnitude_masks([array], share)
    np.testing.assert_array_equal(mask, _PRUNING[name])
    threshold = magnitude_threshold(np.abs(array), share)
    assert threshold == _PRUNING[f"{name}_threshold"]


@pytest.mark.parametrize(
    ("scope", "kept"), [("tensor", [5, 5]), ("global", [0, 10])]
)
def test_scope_is_each_array_or_all_together(scope, kept):
    small, large = np.arange(1.0, 11.0), np.arange(101.0, 111.0)
    masks = magnitude_masks([small, -large], 0.5, scope=scope)
    assert [int(mask.sum()) for mask in masks] == kept


@pytest.mark.parametrize("sparsity", [-0.1, 1.5, float("nan")])
def test_wrong_arguments_are_errors(sparsity):
    with pytest.raises(ValueError, match=r"`sparsity` must be in \[0, 1\]"):
        magnitude_masks([np.ones(3)], sparsity)

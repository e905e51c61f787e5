"""Weights and images that are not finite are named, and nothing is measured."""

import numpy as np
import pytest

import tfcaps
from tests.networks import tiny_capsnet
from tfcaps import rem
from tfcaps.routing import UniformRouting

LABELS = np.arange(6) % 3
FUNCTIONS = {
    "evaluate": lambda m, x: rem.evaluate(m, (x, LABELS)),
    "faithfulness": lambda m, x: rem.faithfulness(m, x),
    "trees": lambda m, x: rem.trees(m, x),
}


@pytest.fixture
def images(rng):
    return rng.random((6, 8, 8, 1), dtype=np.float32)


def network(**settings):
    return tiny_capsnet(primary_kernel_size=4, **settings)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_layer_or_an_image_without_numbers_is_named(name, images):
    model, function = network(), FUNCTIONS[name]
    for value in (np.nan, np.inf):
        other = images.copy()
        other[4, 2, 2] = value
        said = "in image 4, counted from 0; 1 of its"
        with pytest.raises(ValueError, match=said):
            function(model, other)
    kernel = model.get_layer("conv").kernel
    kernel.assign(np.full(kernel.shape, np.nan))
    with pytest.raises(ValueError, match="Weights.*NaN or inf.*'conv/kernel'"):
        function(model, images)


@pytest.mark.parametrize("name", ["evaluate", "faithfulness"])
def test_couplings_that_never_change_do_not_hide_it(name, images):
    model = network(routing=UniformRouting())
    weight = model.get_layer("class_caps").transformation
    weight.assign(np.full(weight.shape, np.nan))
    with pytest.raises(ValueError, match="in 'class_caps/transformation'"):
        FUNCTIONS[name](model, images)


def test_images_of_a_data_set_are_counted(images):
    images[5] = np.nan
    batches = [(images[:4], LABELS[:4]), (images[4:], LABELS[4:])]
    with pytest.raises(ValueError, match="in image 5, .*; 1 of its batch of 2"):
        rem.evaluate(network(), batches)


def test_numbers_that_get_too_large_are_told_from_these(images):
    model = network()
    with pytest.raises(ValueError, match="numbers get too large"):
        rem.evaluate(model, (images * 1e30, LABELS))


def test_nothing_is_pruned_by_weights_that_are_no_numbers(images):
    for begin in (
        lambda m: rem.prune_low_magnitude(m, lambda step: 0.5),
        lambda m: rem.prune_structured(m, lambda step: 0.5),
    ):
        model = network()
        model.compile("adam", tfcaps.losses.MarginLoss())
        begin(model)
        kernel = model.get_layer("conv").kernel
        kernel.assign(np.full(kernel.shape, np.nan))
        with pytest.raises(ValueError, match="NaN or infinity in 'conv/ker"):
            model.pruning.begin_step(model, 1)
        rem.strip_pruning(model)
        with pytest.raises(ValueError, match="NaN or infinity in 'conv/ker"):
            rem.compact(model)
    with pytest.raises(ValueError, match="Images must be finite.*image 0"):
        rem.prune_iteratively(network(), (np.nan * images, LABELS))

"""The number of levels at which the accuracy holds."""

import keras
import numpy as np
import pytest

from tests.networks import outputs_of, sharpened, tiny_capsnet
from tfcaps import rem
from tfcaps.layers import ClassCaps, Length


@pytest.fixture
def images(rng):
    return rng.random((40, 8, 8, 1), dtype=np.float32)


def _network():
    return tiny_capsnet(4, filters=6, primary_dim=8, primary_kernel_size=4)


def test_the_curve_is_that_of_evaluate_at_each_number_of_levels(images):
    model = sharpened(_network())
    labels = np.arange(40) % 4
    rows = rem.levels_curve(model, (images, labels), (2, 11))
    for row in rows:
        report = rem.evaluate(model, (images, labels), row["levels"])
        for name in ("accuracy", "accuracy_quantized", "entropy_bits"):
            assert row[name] == pytest.approx(getattr(report, name)), name
    assert rows[0]["entropy_bits"] < rows[-1]["entropy_bits"]
    beside = rem.Evaluator(model, 3, curve=(2, 11)).run((images, labels))
    assert beside.levels == 3 and beside.by_levels == rows


def _hits(model, images, labels, number):
    """Returns how many images a network with rounded couplings has right."""
    rounded = rem.quantize_couplings(model, number)
    return np.sum(outputs_of(rounded, images).argmax(axis=-1) == labels)


@pytest.mark.parametrize(
    ("wrong", "least"),
    # 10 of 40 wrong have a standard error of 2.7 images.
    [(0, 40), (10, 30 - 2.74)],
)
def test_each_layer_gets_the_lowest_levels_that_hold_the_accuracy(
    rng, wrong, least
):
    layers = ClassCaps(6, 4, name="hidden"), ClassCaps(4, 4, name="class_caps")
    model = keras.Sequential([keras.Input((12, 4)), *layers, Length()])
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape))
    images = rng.normal(size=(40, 12, 4)).astype("float32")
    labels = outputs_of(model, images).argmax(axis=-1)
    labels[:wrong] = (labels[:wrong] + 1) % 4
    numbers = 2, 5, 201
    chosen = rem.lowest_levels(model, (images, labels), numbers)
    assert len(chosen) == len(layers)
    for place, number in enumerate(chosen):
        after = (None,) * (len(layers) - place - 1)
        hits = [
            _hits(model, images, labels, (*chosen[:place], each, *after))
            for each in numbers
        ]
        pairs = zip(numbers, hits, strict=True)
        holding = [n for n, hit in pairs if hit >= least]
        assert number == holding[0]
    # Where a quarter is wrong, two levels are within the error.
    assert (max(chosen) > 2) == (wrong < 10)


def test_where_no_number_holds_the_accuracy_it_is_said(images):
    model = sharpened(_network())
    labels = outputs_of(model, images).argmax(axis=-1)
    with pytest.warns(UserWarning, match="holds the accuracy of 100.00%"):
        assert rem.lowest_levels(model, (images, labels), (2,)) == (2,)

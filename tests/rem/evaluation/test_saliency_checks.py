"""Whether saliency maps are of the image and of what was learnt."""

import numpy as np
import pytest

from tests.networks import draw_weights, images_of, of_capsules, tiny_capsnet
from tests.rem.evaluation.test_pixels import IMAGES, network
from tests.tolerance import assert_all_equal
from tfcaps import rem
from tfcaps.layers import ClassCaps
from tfcaps.rem.evaluation.saliency_checks import (
    SaliencyChecks,
    _alike,
    saliency_checks,
    with_new_weights,
)


@pytest.mark.slow
def test_maps_of_what_was_found_are_of_the_image():
    model = network()
    found = saliency_checks(model, IMAGES)
    assert found.specific
    assert found.verdict.startswith("The saliency maps are of the image: their")
    assert found == saliency_checks(model, IMAGES)
    assert saliency_checks(model, IMAGES[:1]) is None


@pytest.mark.slow
def test_maps_that_are_always_alike_are_no_explanation():
    model = draw_weights(tiny_capsnet(), 4, class_caps=3.0)
    before = model.get_weights()
    images = images_of(model, 20)
    found = saliency_checks(model, images)
    assert not found.specific and found.other_image > 0.9
    assert "no explanation: their rank correlation with" in found.verdict
    assert_all_equal(model.get_weights(), before)
    used = rem.faithfulness(model, images, draws=1)
    assert used.saliency.other_image == pytest.approx(found.other_image)
    assert used.further == [used.saliency]
    assert used.to_dict()["saliency"]["specific"] is False


def test_other_weights_are_those_before_training():
    model = draw_weights(tiny_capsnet(), 4, class_caps=3.0)
    first, again, other = (with_new_weights(model, s) for s in (0, 0, 1))
    assert_all_equal(first.get_weights(), again.get_weights())
    kernels = [m.layers[1].kernel for m in (first, other, model)]
    assert len({float(kernel[0, 0, 0, 0]) for kernel in kernels}) == 3


def test_what_has_no_maps_is_not_measured():
    model = of_capsules(ClassCaps(3, 4), 8, 4)
    assert saliency_checks(model, np.ones((3, 8, 4), "float32")) is None


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([[1, 2, 3]], [[2, 4, 9]], 1.0),
        ([[1, 2, 3]], [[3, 2, 1]], -1.0),
        ([[1, 2, 3]], [[0, 0, 0]], 0.0),
        ([[1, 2, 3], [1, 2, 2]], [[1, 2, 3], [5, 5, 5]], 0.5),
    ],
)
def test_rank_correlations(first, second, expected):
    assert _alike(np.array(first), np.array(second)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("numbers", "specific"), [((0.5, 0.2), True), ((0.1, 0.51), False)]
)
def test_both_must_be_low(numbers, specific):
    assert SaliencyChecks(*numbers).specific is specific

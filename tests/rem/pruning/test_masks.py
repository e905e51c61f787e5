"""Magnitude masks against tfmot's own."""

import re

import numpy as np
import pytest

from tests.golden import load
from tfcaps.rem import magnitude_masks
from tfcaps.rem.pruning.masks import magnitude_threshold

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


def test_tensor_scope_prunes_the_same_share_of_each_array():
    small, large = np.arange(1.0, 11.0), np.arange(101.0, 111.0)
    masks = magnitude_masks([small, large], 0.5)
    assert [int(mask.sum()) for mask in masks] == [5, 5]


def test_global_scope_takes_one_threshold():
    small, large = np.arange(1.0, 11.0), np.arange(101.0, 111.0)
    masks = magnitude_masks([small, -large], 0.5, scope="global")
    assert [int(mask.sum()) for mask in masks] == [0, 10]


def test_negative_weights_count_by_magnitude():
    (mask,) = magnitude_masks([np.array([-3.0, 1.0, 2.0, -0.5])], 0.5)
    assert mask.tolist() == [True, False, True, False]


@pytest.mark.parametrize("sparsity", [-0.1, 1.5, float("nan")])
def test_sparsity_out_of_range_is_an_error(sparsity):
    with pytest.raises(ValueError, match=r"`sparsity` must be in \[0, 1\]"):
        magnitude_masks([np.ones(3)], sparsity)


def test_unknown_scope_is_an_error():
    with pytest.raises(ValueError, match="`scope` must be one of"):
        magnitude_masks([np.ones(3)], 0.5, scope="layer")

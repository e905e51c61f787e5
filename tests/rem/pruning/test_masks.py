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
    with pytest.raises(ValueError, match="`scope` must be one of"):
        magnitude_masks([np.ones(3)], 0.5, scope="layer")

"""Length, squash and the quantiser."""

from functools import partial

import keras
import numpy as np
import pytest

from tests import reference
from tests.golden import load
from tests.gradients import value_and_gradients
from tests.refusals import refused
from tests.tolerance import assert_close
from tfcaps.ops import (
    dequantize,
    efficient_squash,
    length,
    longest,
    quantize,
    square_root,
    squash,
    towards_class,
)

SQUASH = load("01_squash")
BINS = load("03_bin_edges")
# Under the root; the last two references add theirs elsewhere, which differs by
# less than the tolerance.
EPSILONS = {
    "hinton_rem": 1e-6,
    "hinton_xifeng": 1e-7,
    "hinton_gamma": 1e-12,
    "hinton_eff": 1e-20,
}
VARIANTS = {
    **{name: partial(squash, epsilon=e) for name, e in EPSILONS.items()},
    "efficient": efficient_squash,
}
every_squash = pytest.mark.parametrize(
    ("name", "function"), [("hinton", squash), ("efficient", efficient_squash)]
)
LEVELS = [3, 5, 6, 11, 128]
# Their edges are exact in float32.
EXACT_EDGES = (3, 5, 128)


@pytest.mark.parametrize("variant", VARIANTS)
def test_squash_equals_the_public_implementations(variant):
    function = VARIANTS[variant]
    value, (gradient,) = value_and_gradients(
        function, SQUASH["vectors"], upstream=SQUASH["upstream"]
    )
    assert_close(value, SQUASH[variant])
    assert_close(gradient, SQUASH[f"{variant}_grad"], atol=1e-5)
    special = function(SQUASH["special_vectors"])
    assert_close(special, SQUASH[f"{variant}_special"])


@pytest.mark.parametrize("rows", ["vectors", "special_vectors"])
@every_squash
def test_squash_is_close_to_the_exact_one(name, function, rows):
    suffix = "_special" if rows == "special_vectors" else ""
    value, (gradient,) = value_and_gradients(function, SQUASH[rows])
    expected = SQUASH[f"exact_{name}{suffix}"]
    assert_close(value, expected)
    assert np.all(np.isfinite(gradient))
    if name == "efficient":  # also the shortest vectors keep their digits
        assert_close(value, expected, atol=0.0, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_longest_capsule_is_the_first_of_equal_ones(dtype, rng):
    lengths = rng.integers(0, 3, (50, 4)).astype(dtype) / 2
    found = longest(lengths)
    assert keras.backend.standardize_dtype(found.dtype) == "int32"
    np.testing.assert_array_equal(found, np.argmax(lengths, axis=-1))


@every_squash
def test_squash_works_along_any_axis(name, function, rng):
    vectors = rng.normal(size=(2, 4, 3)).astype("float32")
    expected = np.moveaxis(function(np.moveaxis(vectors, 1, -1)), -1, 1)
    assert_close(function(vectors, axis=1), expected, atol=1e-7)
    vector = {"hinton": reference.squash}.get(name, reference.efficient_squash)
    assert_close(expected[1, :, 2], vector(vectors[1, :, 2]))


@pytest.mark.parametrize("function", [squash, length, square_root])
def test_zero_gives_zero_and_no_gradient(function):
    value, (gradient,) = value_and_gradients(function, np.zeros((2, 3), "f"))
    assert not np.any(value) and not np.any(gradient)
    assert np.all(np.isfinite(gradient))


def test_length_is_the_exact_norm(rng):
    vectors = rng.normal(size=(5, 4)).astype("float32")
    value, (gradient,) = value_and_gradients(length, vectors)
    norms = np.linalg.norm(vectors, axis=-1)
    assert_close(value, norms, atol=0.0, rtol=1e-6)
    assert_close(gradient, vectors / norms[:, None])
    # No epsilon under the root: short capsules keep their length.
    assert_close(length(1e-6 * vectors), 1e-6 * norms, atol=0.0, rtol=1e-6)
    kept = length(vectors[None], axis=2, keepdims=True)
    assert_close(kept, norms[None, :, None])


@pytest.mark.parametrize("function", [length, squash, efficient_squash])
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_dtype_is_kept_and_half_precision_does_not_overflow(function, dtype):
    # The squared length, 250,000, is beyond the largest float16.
    value = function(np.array([[300.0, 400.0]], dtype))
    assert value.dtype.name == dtype
    expected = {length: 500.0}.get(function, [[0.6, 0.8]])
    assert_close(value, expected, atol=0.0, rtol=1e-3)


@pytest.mark.parametrize("levels", LEVELS)
def test_quantizer_equals_the_reference_on_and_beside_edges(levels):
    mode = "midrise" if levels == 128 else "midtread"
    values = BINS[f"K{levels}_values"]
    # Elsewhere float32 cannot tell on which side of the edge a value lies.
    edges = BINS[f"K{levels}_edges_f64"]
    apart = np.abs(values.astype("float64")[:, None] - edges).min(axis=1)
    decidable = apart > 1e-6
    if levels in EXACT_EDGES:
        decidable |= BINS[f"K{levels}_is_exact_f64_edge"]
    codes = np.asarray(quantize(values, levels, mode=mode))
    expected = BINS[f"K{levels}_routing_bin_index"]
    assert codes.dtype == np.int32
    assert decidable.sum() > 25
    np.testing.assert_array_equal(codes[decidable], expected[decidable])
    rounded = dequantize(expected, levels, mode=mode)
    assert_close(rounded, BINS[f"K{levels}_quantized"])
    centers = dequantize(np.arange(levels), levels, mode=mode)
    assert_close(centers, BINS[f"K{levels}_centers"])
    below = np.arange(levels - 1)
    for step, codes in ((-1e-5, below), (1e-5, below + 1)):
        beside = (edges[1:-1] + step).astype("float32")
        actual = quantize(beside, levels, mode=mode)
        np.testing.assert_array_equal(actual, codes)


@pytest.mark.parametrize("mode", ["midtread", "midrise"])
@pytest.mark.parametrize("levels", [2, *LEVELS])
def test_quantizer_leaves_its_own_levels_alone(levels, mode):
    codes = np.arange(levels)
    values = np.asarray(dequantize(codes, levels, mode=mode))
    assert values.min() >= 0 and values.max() <= 1
    np.testing.assert_array_equal(quantize(values, levels, mode=mode), codes)
    ends = quantize(np.array([0.0, 1.0]), levels, mode=mode)
    np.testing.assert_array_equal(ends, [0, levels - 1])


test_wrong_settings_are_refused = refused(
    """
quantize(0.5, 1)
dequantize(0, 1)
    `levels` must be an integer of at least 2. Received: levels=1.
quantize(0.5, True)
quantize(0.5, 2.5)
    `levels` must be an integer of at least 2. Received: levels=
quantize(0.5, 5, mode="ceil")
dequantize(0, 5, mode="ceil")
    `mode` must be "midtread" or "midrise". Received: mode='ceil'.
""",
    quantize=quantize,
    dequantize=dequantize,
)


@pytest.mark.parametrize("shape", [(3, 4), (3, 5, 4), (3, 2, 5, 4)])
def test_values_towards_a_class_are_those_of_its_column(shape, rng):
    values, classes = rng.normal(size=shape), np.array([3, 0, 2])
    expected = [x[..., j] for x, j in zip(values, classes, strict=True)]
    np.testing.assert_array_equal(towards_class(values, classes), expected)

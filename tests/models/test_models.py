"""The published networks."""

import re

import numpy as np
import pytest

from tfcaps.models import dr_capsnet
from training.devices import dtype_policy

SMALL = {
    "filters": 4,
    "kernel_size": 3,
    "primary_types": 2,
    "primary_dim": 4,
    "primary_kernel_size": 3,
    "class_dim": 6,
}


def test_lengths_are_named_and_lie_between_zero_and_one(rng):
    model = dr_capsnet((8, 9, 3), 5, **SMALL)
    assert [tensor.name for tensor in model.inputs] == ["images"]
    assert model.output_names == ["lengths"]
    assert model.output_shape == (None, 5)
    lengths = model(rng.uniform(size=(3, 8, 9, 3)))
    assert np.all(lengths >= 0) and np.all(lengths < 1)


def test_settings_reach_the_layers():
    model = dr_capsnet((8, 8, 1), 5, routing=1, share="all", name="x", **SMALL)
    layer = model.get_layer("class_caps")
    assert model.name == "x"
    assert layer.routing.iterations == 1
    assert tuple(layer.transformation.shape) == (5, 4, 6)
    assert model.get_layer("primary_caps").output.shape == (None, 2, 2, 2, 4)


def test_lengths_are_float32_under_mixed_precision(rng):
    with dtype_policy("mixed_float16"):
        model = dr_capsnet((8, 8, 1), 5, **SMALL)
    assert model.get_layer("class_caps").compute_dtype == "float16"
    lengths = model(rng.uniform(size=(2, 8, 8, 1)))
    assert lengths.dtype.name == "float32"
    assert np.all(np.isfinite(lengths))


def test_smallest_images_are_17_pixels_wide():
    settings = {"filters": 2, "primary_types": 1}
    model = dr_capsnet((17, 17, 1), 10, **settings)
    assert model.get_layer("primary_caps").output.shape == (None, 1, 1, 1, 8)


@pytest.mark.parametrize("shape", [(16, 28, 1), (28, 16, 1), (28, 28)], ids=str)
def test_images_of_a_wrong_shape_are_refused(shape):
    message = (
        "`input_shape` must be (rows, columns, channels) with at least 17 rows "
        "and 17 columns for kernel_size=9 and primary_kernel_size=9. Received: "
        f"input_shape={shape}. Use larger images or smaller kernels."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        dr_capsnet(shape, 10)


def test_windows_of_primary_caps_need_not_be_square():
    model = dr_capsnet((10, 14, 3), 2, filters=2, primary_kernel_size=(2, 6))
    assert model.get_layer("primary_caps").output.shape[1:3] == (1, 1)
    with pytest.raises(ValueError, match="at least 10 rows and 14 columns"):
        dr_capsnet((14, 10, 3), 2, filters=2, primary_kernel_size=(2, 6))

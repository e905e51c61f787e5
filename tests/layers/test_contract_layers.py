"""The contract of every public layer."""

from functools import partial
from operator import itemgetter

import keras
import numpy as np
import pytest

from tests.backends import compiled, nightly_on_jax, of_any_batch
from tests.gradients import value_and_gradients
from tests.registry import LAYERS, parametrize
from tests.tolerance import assert_all_close, assert_close
from tfcaps.layers import (
    CapsuleConv2D,
    Length,
    PrimaryCaps,
    PrimaryMatrixCaps,
    Squash,
)

WITH_WEIGHTS = [
    case for case in LAYERS if case.public_class not in (Length, Squash)
]


# XLA takes long. The variants of routed layers are compiled in
# tests/routing/test_execution.py.
@parametrize([case for case in LAYERS if "-" not in case.name])
def test_compiled_outputs_and_gradients_are_those_of_eager_calls(case, rng):
    layer, inputs = case.make(), case.random_inputs(rng, 2)
    call = partial(value_and_gradients, partial(case.apply, layer))
    eager, jitted = (
        keras.tree.flatten(f(inputs)) for f in (call, compiled(call))
    )
    assert_all_close(jitted, eager, atol=1e-5)


@nightly_on_jax
@parametrize(LAYERS)
def test_rows_of_batches_of_any_size_do_not_influence_each_other(case, rng):
    model = case.model()
    inputs = case.random_inputs(rng, 5)
    together = keras.tree.flatten(model(inputs))
    for value, spec in zip(together, model.outputs, strict=True):
        assert (None, *value.shape[1:]) == tuple(spec.shape)
        assert keras.backend.standardize_dtype(value.dtype) == spec.dtype
    # In one graph, two full batches and a last one of one sample.
    graph = of_any_batch(model)
    for start in (0, 2, 4):
        rows = slice(start, start + 2)
        batch = keras.tree.map_structure(itemgetter(rows), inputs)
        alone = keras.tree.flatten(graph(batch))
        assert_all_close(alone, [x[rows] for x in together], atol=1e-5)
    # Large neighbours make a shared statistic visible.
    others = keras.tree.map_structure(
        lambda array: np.concatenate([array[:1], 10 * array[1:]]), inputs
    )
    beside = keras.tree.flatten(model(others))
    assert_all_close([x[0] for x in beside], [x[0] for x in together])


@parametrize(WITH_WEIGHTS)
def test_one_training_step_changes_every_weight(case, rng):
    model = case.model()
    # Tracing takes long on TensorFlow, and each operation alone on JAX.
    eager = keras.backend.backend() != "jax"
    model.compile(keras.optimizers.SGD(1.0), loss="mse", run_eagerly=eager)
    inputs = case.random_inputs(rng, 2)
    targets = keras.tree.map_structure(
        lambda output: rng.normal(size=(2, *output.shape[1:])), model.output
    )
    # What no gradient moves is set by labels or callbacks, of which there are
    # none.
    weights = model.trainable_weights
    before = [np.array(weight) for weight in weights]
    model.train_on_batch(inputs, targets)
    for weight, old in zip(weights, before, strict=True):
        assert np.any(np.asarray(weight) != old), weight.path


@nightly_on_jax
@parametrize(LAYERS)
def test_other_precisions_stay_finite_and_close(case, rng):
    layer = case.make()
    inputs = case.random_inputs(rng, 2)
    outputs = keras.tree.flatten(case.apply(layer, inputs))
    for policy in ("mixed_float16", "mixed_bfloat16", "float64"):
        other = case.make(dtype=policy)
        specs = keras.tree.flatten(case.apply(other, case.symbolic_inputs()))
        other.set_weights(layer.get_weights())
        converted = keras.tree.flatten(case.apply(other, inputs))
        for output, wanted, spec in zip(converted, outputs, specs, strict=True):
            assert output.dtype.name == spec.dtype
            # bfloat16 keeps 8 bits of a number.
            assert_close(
                np.asarray(output, "float32"), wanted, atol=3e-2, rtol=3e-2
            )


@nightly_on_jax
@parametrize(WITH_WEIGHTS)
def test_a_frozen_layer_is_still_frozen_once_it_is_loaded(case, tmp_path):
    model = case.model()
    for layer in model.layers:
        layer.trainable = False
    assert not model.trainable_variables
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert not loaded.trainable_variables


@pytest.mark.parametrize(
    ("layer", "channels", "shapes"),
    [
        (
            CapsuleConv2D(2, 4, strides=2),
            (2, 3),
            {(5, 7): (3, 4), (6, 6): (3, 3)},
        ),
        (PrimaryCaps(2, 4, 3), (3,), {(5, 7): (3, 5), (6, 6): (4, 4)}),
        (PrimaryMatrixCaps(2, 4), (3,), {(5, 7): (5, 7), (6, 6): (6, 6)}),
    ],
    ids=["capsule_conv", "primary_caps", "primary_matrix_caps"],
)
def test_maps_may_have_any_size(layer, channels, shapes):
    features = keras.Input((None, None, *channels))
    model = keras.Model(features, layer(features))
    for size, expected in shapes.items():
        maps = np.ones((2, *size, *channels), "float32")
        poses = keras.tree.flatten(model.predict(maps, verbose=0))[0]
        assert poses.shape == (2, *expected, 2, 4)

"""What TensorFlow runs: XLA around routing, and products that do no harm."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_callbacks

from tests.gradients import value_and_gradients, with_weights
from tests.nightly import nightly
from tests.registry import LAYERS, parametrize
from tests.tolerance import assert_all_close
from tfcaps.layers import ClassCaps, ConvCaps, ConvCaps3D
from tfcaps.routing import (
    DynamicRouting,
    EMRouting,
    execution,
)

CHILDREN = np.zeros((2, 6, 4), "float32")
MAPS = np.zeros((2, 4, 3, 2, 4), "float32")
STRATEGY = tf.distribute.get_strategy()


@pytest.fixture
def always(monkeypatch):
    """Lets XLA compile the smallest layers too."""
    monkeypatch.setattr(execution, "MANY_VOTES", 0)


def has_xla(function, *arguments):
    """Returns True if a traced function holds one that XLA must compile."""
    traced = tf.function(function, autograph=False)
    graph = traced.get_concrete_function(*arguments).graph
    library = graph.as_graph_def().library.function
    return any(f.attr["_XlaMustCompile"].b for f in library)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "inputs"),
    [
        (ClassCaps(3, 4), CHILDREN),
        (ClassCaps(3, 4, EMRouting(3)), CHILDREN),
        (ConvCaps(3, 4, 2), MAPS),
        pytest.param(ConvCaps3D(3, 4), MAPS, marks=nightly),
    ],
    ids=["class", "em", "conv", "conv_3d"],
)
def test_xla_is_in_steps_and_in_no_exported_signature(
    layer, inputs, always, tmp_path
):
    spec = keras.Input(inputs.shape[1:])
    model = keras.Model(spec, keras.layers.Flatten()(layer(spec)))
    assert has_xla(lambda x: STRATEGY.run(model, (x,)), inputs)
    assert not has_xla(model, inputs)
    model.predict(inputs, verbose=0)
    model.export(tmp_path / "exported", verbose=0)
    served = tf.saved_model.load(tmp_path / "exported")
    assert not has_xla(served.signatures["serving_default"], inputs)


def test_few_votes_are_not_compiled():
    small, large = ClassCaps(3, 4), ClassCaps(64, 64)
    few, many = CHILDREN, np.zeros((1, 32, 8), "float32")
    assert not has_xla(lambda x: STRATEGY.run(small, (x,)), few)
    # Gradients through a loop are TensorFlow's own.
    looped = ClassCaps(64, 64, DynamicRouting(gradient="full"))
    assert not has_xla(lambda x: STRATEGY.run(looped, (x,)), many)
    assert has_xla(lambda x: STRATEGY.run(large, (x,)), many)


@pytest.mark.slow
@pytest.mark.parametrize(
    "routing", ["dynamic", EMRouting(3), "scaled_distance", "self_attention"]
)
def test_compiled_steps_on_batches_of_any_size_are_those_of_eager_calls(
    routing, always, rng
):
    layer = ConvCaps(3, 4, 2, routing=routing)

    def step(maps):
        with tf.GradientTape() as tape:
            tape.watch(maps)
            outputs = layer(maps, return_activations=True)
        weights = layer.trainable_variables
        return [*outputs, *tape.gradient(outputs, [maps, *weights])]

    spec = tf.TensorSpec((None, *MAPS.shape[1:]), "float32")
    traced = tf.function(
        lambda maps: STRATEGY.run(step, (maps,)), [spec], autograph=False
    )
    for batch in (2, 9):
        shape = (batch, *MAPS.shape[1:])
        maps = tf.constant(rng.normal(size=shape), "float32")
        assert_all_close(traced(maps), step(maps), atol=1e-4)


def products(function, *values):
    """Returns the shapes `[..., m, k]` of left factors in a gradient."""
    shapes = []

    def note(op_type, inputs, attrs, outputs, op_name=None, graph=None):
        if "BatchMatMul" in tf.compat.as_text(op_type):
            names = map(tf.compat.as_text, attrs[::2])
            is_turned = dict(zip(names, attrs[1::2], strict=True))["adj_x"]
            *batch, rows, common = inputs[0].shape
            if is_turned:
                rows, common = common, rows
            shapes.append((*batch, rows, common))

    op_callbacks.add_op_callback(note)
    try:
        value_and_gradients(function, *values)
    finally:
        op_callbacks.remove_op_callback(note)
    return shapes


@parametrize(LAYERS)
def test_no_gradient_of_a_layer_multiplies_columns_by_rows(case, rng):
    layer = case.make()
    inputs = case.random_inputs(rng, 2)
    case.apply(layer, inputs)
    weights = layer.trainable_variables
    shapes = products(
        with_weights(lambda x: case.apply(layer, x), weights),
        [weight.value for weight in weights],
        inputs,
    )
    # Each has something to sum up.
    assert all(common > 1 for *_, common in shapes), shapes

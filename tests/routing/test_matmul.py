"""Products of matrices that TensorFlow 2.21 can do without harm.

Those of a column and a row write beyond oneDNN's buffers when several
operations run at once. A training may then crash, rarely, and anywhere.
"""

import tensorflow as tf
from tensorflow.python.framework import op_callbacks

from tests.gradients import value_and_gradients, with_weights
from tests.registry import LAYERS, ROUTINGS, parametrize
from tfcaps.routing import MeanShiftRouting, UniformRouting


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
    # Each has something to sum up.
    assert all(common > 1 for *_, common in shapes), shapes
    return shapes


@parametrize(LAYERS)
def test_no_gradient_of_a_layer_multiplies_columns_by_rows(case, rng):
    layer = case.make()
    inputs = case.random_inputs(rng, 2)
    case.apply(layer, inputs)
    weights = layer.trainable_variables
    products(
        with_weights(lambda x: case.apply(layer, x), weights),
        [weight.value for weight in weights],
        inputs,
    )


@parametrize(ROUTINGS)
def test_no_gradient_of_a_routing_multiplies_columns_by_rows(case, rng):
    votes, activations, weights = case.random_arguments(rng)
    shapes = products(
        lambda x: case.make()(x, activations, **weights)._asdict(), votes
    )
    assert shapes or case.public_class in (MeanShiftRouting, UniformRouting)

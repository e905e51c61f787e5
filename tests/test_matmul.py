"""Products of matrices that TensorFlow 2.21 can do without harm.

With four axes and several threads its oneDNN writes beyond its buffers, so that
a training may crash: rarely, and where nobody would look for it.
"""

import contextlib

import pytest
import tensorflow as tf
from tensorflow.python.framework import op_callbacks

from tests.gradients import value_and_gradients, with_weights
from tests.registry import LAYERS, ROUTINGS, parametrize
from tfcaps.layers import compiled
from tfcaps.routing import UniformRouting


@contextlib.contextmanager
def products():
    """Yields a list that gets the shapes of whatever is multiplied."""
    shapes = []

    def note(op_type, inputs, attrs, outputs, op_name=None, graph=None):
        if "MatMul" in tf.compat.as_text(op_type):
            shapes.extend(tuple(tensor.shape) for tensor in inputs)

    op_callbacks.add_op_callback(note)
    try:
        yield shapes
    finally:
        op_callbacks.remove_op_callback(note)


@pytest.fixture(autouse=True)
def without_xla(monkeypatch):
    """XLA multiplies by itself, and hides what it multiplies."""
    monkeypatch.setattr(compiled, "MANY_VOTES", 10**9)


def assert_three_axes(shapes):
    assert all(len(shape) <= 3 for shape in shapes), shapes


@parametrize(LAYERS)
def test_layers_multiply_matrices_of_three_axes_at_most(case, rng):
    layer = case.make()
    inputs = case.random_inputs(rng, 2)
    case.apply(layer, inputs)
    weights = layer.trainable_variables
    with products() as shapes:
        value_and_gradients(
            with_weights(lambda x: case.apply(layer, x), weights),
            [weight.value for weight in weights],
            inputs,
        )
    assert_three_axes(shapes)


@parametrize(ROUTINGS)
def test_routings_multiply_matrices_of_three_axes_at_most(case, rng):
    votes, activations, weights = case.random_arguments(rng)
    with products() as shapes:
        value_and_gradients(
            lambda x: case.make()(x, activations, **weights)._asdict(), votes
        )
    assert shapes or case.public_class is UniformRouting
    assert_three_axes(shapes)

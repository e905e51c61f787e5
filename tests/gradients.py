"""Gradients on any backend, with zeros where nothing is connected."""

import keras
from keras import ops


def value_and_gradients(function, *values, upstream=None):
    """Returns `function(*values)` and the gradients of its sum.

    Values may be dicts of arrays. `upstream` holds, for each output, an array
    that multiplies it before the sum.
    """

    def value_and_total(*tensors):
        value = function(*tensors)
        weighted = value
        if upstream is not None:
            outputs, factors = map(keras.tree.flatten, (value, upstream))
            weighted = [a * b for a, b in zip(outputs, factors, strict=True)]
        return value, sum_of_all(weighted)

    tensors = keras.tree.map_structure(ops.convert_to_tensor, values)
    if keras.backend.backend() == "jax":
        return _jax_gradients(value_and_total, tensors)
    return _tensorflow_gradients(value_and_total, tensors)


def _tensorflow_gradients(value_and_total, tensors):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value, total = value_and_total(*tensors)
    return value, tape.gradient(total, tensors, unconnected_gradients="zero")


def _jax_gradients(value_and_total, tensors):
    import jax

    def total_first(*tensors):
        value, total = value_and_total(*tensors)
        return total, value

    places = tuple(range(len(tensors)))
    compute = jax.value_and_grad(total_first, places, has_aux=True)
    (_, value), gradients = compute(*tensors)
    return value, gradients


def sum_of_all(outputs):
    """Returns the float32 sum over all entries of all outputs."""
    return sum(
        ops.sum(ops.cast(output, "float32"))
        for output in keras.tree.flatten(outputs)
    )


def with_weights(function, variables):
    """Returns the function with values of variables as its first argument."""

    def call(values, *arguments):
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            return function(*arguments)

    return call

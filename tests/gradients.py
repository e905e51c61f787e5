"""Gradients on TensorFlow, with zeros where nothing is connected."""

import keras
import tensorflow as tf


def value_and_gradients(function, *values, upstream=None):
    """Returns `function(*values)` and the gradients of its sum.

    Values may be dicts of arrays. `upstream` holds, for each output, an array
    that multiplies it before the sum.
    """
    tensors = keras.tree.map_structure(tf.convert_to_tensor, values)
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = function(*tensors)
        weighted = value
        if upstream is not None:
            outputs, factors = map(keras.tree.flatten, (value, upstream))
            weighted = [a * b for a, b in zip(outputs, factors, strict=True)]
        total = sum_of_all(weighted)
    return value, tape.gradient(total, tensors, unconnected_gradients="zero")


def sum_of_all(outputs):
    """Returns the float32 sum over all entries of all outputs."""
    return tf.add_n(
        [
            tf.reduce_sum(tf.cast(output, "float32"))
            for output in keras.tree.flatten(outputs)
        ]
    )

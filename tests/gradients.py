"""Gradients on TensorFlow, with zeros where nothing is connected."""

import keras
import tensorflow as tf


def value_and_gradients(function, *values):
    """Returns `function(*values)` and the gradients of its sum."""
    tensors = [tf.convert_to_tensor(value) for value in values]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = function(*tensors)
        total = sum_of_all(value)
    return value, tape.gradient(total, tensors, unconnected_gradients="zero")


def sum_of_all(outputs):
    """Returns the float32 sum over all entries of all outputs."""
    return tf.add_n(
        [
            tf.reduce_sum(tf.cast(output, "float32"))
            for output in keras.tree.flatten(outputs)
        ]
    )

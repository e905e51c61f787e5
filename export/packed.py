"""Weights that are mostly zeros, stored small and unpacked once, at loading.

Magnitude pruning leaves zeros all over a weight. In a SavedModel such a weight
is a bit for each number, and the numbers that are not zero; a function that the
server runs once, after it has read them, makes the whole weight of these.

OpenVINO and TensorFlow Lite do not know such functions.
"""

import hashlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

# Below it the graph that unpacks a weight is larger than what it saves.
_SMALLEST = 4096
_LEAST_SPARSITY = 0.25


class PackedWeight(tf.saved_model.experimental.TrackableResource):
    """A weight that is stored without its zeros.

    Args:
        array: The weight.
    """

    def __init__(self, array: NDArray[Any]):
        super().__init__()
        present = array.ravel() != 0
        self.bits = tf.Variable(np.packbits(present), trainable=False)
        self.values = tf.Variable(array.ravel()[present], trainable=False)
        self._shape = array.shape
        self._dtype = tf.as_dtype(array.dtype)
        # Two models in one process share what has the same name.
        self._name = hashlib.sha256(array.tobytes()).hexdigest()

    def _create_resource(self) -> Any:
        return tf.raw_ops.VarHandleOp(
            dtype=self._dtype, shape=self._shape, shared_name=self._name
        )

    def _initialize(self) -> None:
        size = int(np.prod(self._shape))
        powers = tf.constant([128, 64, 32, 16, 8, 4, 2, 1], tf.uint8)
        bits = tf.bitwise.bitwise_and(self.bits[:, tf.newaxis], powers)
        where = tf.where(tf.reshape(bits, [-1])[:size] != 0)
        whole = tf.scatter_nd(where, self.values, [size])
        tf.raw_ops.AssignVariableOp(
            resource=self.resource_handle,
            value=tf.reshape(whole, self._shape),
        )

    def read(self) -> Any:
        """Returns the whole weight."""
        return tf.raw_ops.ReadVariableOp(
            resource=self.resource_handle, dtype=self._dtype
        )


def is_worth_packing(array: NDArray[Any]) -> bool:
    """Tells whether a weight is large and has many zeros."""
    enough = np.count_nonzero(array) <= (1 - _LEAST_SPARSITY) * array.size
    return array.size >= _SMALLEST and bool(enough)


class Weights(tf.Module):
    """The weights of a Keras model, packed where that is worth it.

    Args:
        model: A Keras model.
        packed: Bool. Pack weights.
    """

    def __init__(self, model: keras.Model, packed: bool):
        super().__init__()
        self._of: dict[str, Any] = {}
        self.stored = []
        for variable in model.variables:
            array = np.asarray(variable)
            stored = variable.value
            if packed and is_worth_packing(array):
                stored = PackedWeight(array)
                # TensorFlow does not look for variables inside of resources.
                self.stored += [stored.bits, stored.values]
            self.stored.append(stored)
            self._of[variable.path] = stored

    def call(self, model: keras.Model, images: Any) -> Any:
        """Returns the outputs of a model that has these weights."""
        values = [
            [self._read(variable) for variable in variables]
            for variables in (
                model.trainable_variables,
                model.non_trainable_variables,
            )
        ]
        outputs, _ = model.stateless_call(*values, images, training=False)
        return outputs

    def _read(self, variable: Any) -> Any:
        stored = self._of[variable.path]
        return stored.read() if isinstance(stored, PackedWeight) else stored

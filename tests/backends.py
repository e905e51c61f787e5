"""What differs between the backends that the tests run on."""

import keras
import pytest

from tests.nightly import NIGHTLY

TENSORFLOW = (
    "tensorflow",
    "tensorflow_datasets",
    "tensorflow_model_optimization",
)

on_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="is about TensorFlow alone"
)

# JAX compiles every operation of every shape.
nightly_on_jax = pytest.mark.skipif(
    keras.backend.backend() == "jax" and not NIGHTLY,
    reason="takes long on JAX: NIGHTLY=1 runs it",
)


def compiled(function, *, xla=True):
    """Returns the function as a graph, compiled by XLA if wanted.

    JAX compiles every graph.
    """
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)

    import tensorflow as tf

    return tf.function(function, jit_compile=xla, autograph=False)


def of_any_batch(model):
    """Returns the model as one graph for batches of any size.

    JAX has one for each size.
    """
    if keras.backend.backend() == "jax":
        return compiled(model)

    import tensorflow as tf

    signature = keras.tree.map_structure(
        lambda x: tf.TensorSpec(x.shape, x.dtype), model.input
    )
    return tf.function(model, [signature], autograph=False)

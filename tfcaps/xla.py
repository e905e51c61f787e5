"""Whether compiling a whole model with XLA pays on the device at hand."""

import keras


def pays() -> bool:
    """Returns the `jit_compile` to use for whole models.

    On a CPU with TensorFlow, XLA made a training step of DR-CapsNet 7 to 14
    times slower (its convolution gradients), and Keras would switch it on by
    itself. JAX always compiles.
    """
    if keras.backend.backend() != "tensorflow":
        return True

    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))

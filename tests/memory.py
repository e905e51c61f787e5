"""Gives back what TensorFlow keeps of functions that nobody can call any more.

Found by following who refers to the graphs that stay: TensorFlow registers the
gradient of every `tf.custom_gradient` that it traces, under a name of its own,
for ever, and the gradient refers to its graph. Each training of any Keras model
leaves two such graphs; with capsules, each prediction one. What XLA compiled
stays too, and cannot be given back before the process ends.
"""

import gc
from pathlib import Path

import keras

# A collection takes half a second; so many bytes more than after the last one.
ENOUGH = 300 << 20


class Cleaner:
    """Frees memory whenever the process has grown by `ENOUGH`."""

    def __init__(self) -> None:
        self._after = _resident()

    def pytest_runtest_logfinish(self) -> None:
        if _resident() - self._after < ENOUGH:
            return
        if keras.backend.backend() == "tensorflow":
            _forget_gradients()
        elif keras.backend.backend() == "jax":
            import jax

            jax.clear_caches()
        keras.backend.clear_session(free_memory=False)
        gc.collect()
        self._after = _resident()


def _forget_gradients() -> None:
    from tensorflow.python.eager import context
    from tensorflow.python.framework import ops

    registered = ops.gradient_registry._registry
    for name in [n for n in registered if n.startswith("CustomGradient-")]:
        del registered[name]
    gc.collect()
    context.context()._clear_caches()


def _resident() -> int:
    """Returns the bytes of this process that are in memory."""
    try:
        pages = Path("/proc/self/statm").read_text("ascii").split()[1]
    except FileNotFoundError:  # Not on Linux: nothing is freed.
        return 0
    return 4096 * int(pages)

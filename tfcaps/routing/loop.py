"""The routing loop: one step repeated, differentiable on every backend."""

from collections.abc import Callable

import keras
from keras import ops

from tfcaps.ops import Tensor


def repeat(
    step: Callable[[Tensor, Tensor], Tensor], state: Tensor, times: int
) -> Tensor:
    """Returns `state` after `state = step(t, state)` for `t` from 0.

    Fewer than one time leaves it as it is.

    TensorFlow's loop is called directly because XLA refuses the gradient of one
    without `maximum_iterations`, which `keras.ops.fori_loop` does not pass, and
    also that of a loop of no steps.
    """
    if times < 1:
        return state
    if keras.backend.backend() != "tensorflow":
        return ops.fori_loop(0, times, step, state)

    import tensorflow as tf

    _, state = tf.while_loop(
        cond=lambda t, _: t < times,
        body=lambda t, s: (t + 1, step(t, s)),
        loop_vars=(tf.constant(0), state),
        maximum_iterations=times,
    )
    return state

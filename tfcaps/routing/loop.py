"""Loops that every backend can run, and XLA compile."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops

from tfcaps.ops import Tensor

_is_unrolled = contextvars.ContextVar("is_unrolled", default=False)


@contextlib.contextmanager
def unrolled() -> Iterator[None]:
    """Makes `repeat` write its steps one after the other, without a loop.

    Other runtimes are slow in a loop, and their tools cannot quantise what is
    in it. Nor can XLA compute the gradient of a loop in a condition.
    """
    token = _is_unrolled.set(True)
    try:
        yield
    finally:
        _is_unrolled.reset(token)


def is_unrolled() -> bool:
    """Returns True while a graph for other runtimes is traced."""
    return _is_unrolled.get()


def repeat(
    step: Callable[[Tensor, Tensor], Tensor],
    state: Tensor,
    times: int,
    differentiated: bool = False,
) -> Tensor:
    """Returns `state` after `state = step(t, state)` for `t` from 0.

    Fewer than one time leaves it as it is. A single step that gradients go
    through (`differentiated`) takes no loop, whose gradient XLA could only
    compute by repeating it. XLA also refuses that of a loop of no steps, or
    without `maximum_iterations`, which `keras.ops.fori_loop` does not pass.
    """
    if times < 1 or (times == 1 and differentiated) or _is_unrolled.get():
        for t in range(times):
            state = step(t, state)
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


def scan(
    step: Callable[[Tensor, list[Tensor]], tuple[Tensor, list[Tensor]]],
    carry: Tensor,
    sequences: list[Tensor],
) -> tuple[Tensor, list[Tensor]]:
    """Returns the last carry of steps over the first axis, and stacked outputs.

    `keras.ops.scan` of Keras 3.15 on TensorFlow demands outputs of the carry's
    shape, and XLA refuses its loop. This one is not differentiable.
    """
    if keras.backend.backend() != "tensorflow":
        return ops.scan(lambda c, parts: step(c, parts), carry, sequences)

    import tensorflow as tf

    count = sequences[0].shape[0]

    def read(index: Tensor) -> list[Tensor]:
        return [tf.gather(sequence, index) for sequence in sequences]

    # The first step outside of the loop shows how many outputs there are.
    carry, outputs = step(carry, read(0))
    arrays = [
        tf.TensorArray(x.dtype, count, element_shape=x.shape).write(0, x)
        for x in outputs
    ]

    def body(index: Tensor, carry: Tensor, arrays: Any) -> Any:
        carry, outputs = step(carry, read(index))
        pairs = zip(arrays, outputs, strict=True)
        return index + 1, carry, [a.write(index, x) for a, x in pairs]

    _, carry, arrays = tf.while_loop(
        cond=lambda index, *_: index < count,
        body=body,
        loop_vars=(tf.constant(1), carry, arrays),
        maximum_iterations=count - 1,
        parallel_iterations=1,
    )
    return carry, [array.stack() for array in arrays]

"""Functions run as Keras' steps run them on TensorFlow."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf


def as_step(
    function: Callable[..., Any], *inputs: Any, like_keras: bool = True
) -> Callable[[], Any]:
    """Returns a call of a traced function that blocks until it has finished.

    Args:
        function: From tensors to a nested structure of tensors.
        *inputs: Its arguments, the same in every call.
        like_keras: Bool. Run it by `Strategy.run`, as `fit` and `predict` do;
            only there does tfcaps compile routing. Defaults to `True`.
    """
    strategy = tf.distribute.get_strategy()

    def run(*tensors: Any) -> Any:
        if like_keras:
            return strategy.run(function, tensors)
        return function(*tensors)

    traced = tf.function(run, autograph=False)

    def step() -> Any:
        outputs = traced(*inputs)
        tf.test.experimental.sync_devices()  # a GPU returns before it is done
        return outputs

    return step


def with_gradients(
    function: Callable[[Any], Any], weights: Sequence[tf.Variable]
) -> Callable[[Any], list[Any]]:
    """Returns a function to outputs and gradients, of inputs and weights.

    The gradients are those of half the squared outputs.
    """

    def forward_and_backward(inputs: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = tf.nest.flatten(function(inputs))
        gradients = tape.gradient(
            outputs, [inputs, *weights], output_gradients=outputs
        )
        return [*outputs, *gradients]

    return forward_and_backward


def random_tensor(*shape: int, scale: float = 1.0, seed: int = 0) -> Any:
    """Returns normally distributed numbers, the same for the same seed."""
    generator = np.random.default_rng(seed)
    return tf.constant(generator.normal(0.0, scale, shape), tf.float32)

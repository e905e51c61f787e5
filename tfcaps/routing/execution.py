"""Decides how votes are routed: held or factored, with XLA or without."""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
from keras import ops

from tfcaps.ops import Tensor
from tfcaps.routing.factored_votes import Block
from tfcaps.routing.routing import Routed, Routing
from tfcaps.routing.votes import Votes

# Votes of a sample (i * j * d) from which routing gains more than it costs to
# compile it, a few seconds for each size of batch.
MANY_VOTES = 2**17
# Above so many votes of a sample they stay factored in eager calls too.
_TOO_MANY_VOTES = 2**20


def route(
    routing: Routing,
    votes: Callable[..., Votes],
    tensors: tuple[Tensor, ...],
    weights: dict[str, Tensor],
    num_votes: int,
    return_couplings: bool,
) -> Routed:
    """Makes votes and routes them, compiled by XLA where that pays.

    Args:
        routing: The routing.
        votes: Makes the votes of `tensors`, without variables.
        tensors: What the votes are made of.
        weights: All that the routing takes besides the votes, by name.
        num_votes: Int. How many numbers the votes of one sample are.
        return_couplings: Bool. Whether the couplings are wanted. If not, they
            carry no gradient, which spares XLA the way back through them.
    """
    if not routing.vote_free:
        # Votes are made apart from a loop, and kept for the backward pass: XLA
        # would turn them while it computes their gradient, which takes longer
        # than one after the other. A layer of EM-CapsNet takes 0.6 of the time.
        forms: list[Votes] = []

        def make(*tensors: Tensor) -> Tensor:
            forms.append(votes(*tensors))
            return forms[-1].tensor

        tensors = (call(make, tensors, num_votes, differentiates_loop=False),)
        votes = forms[-1].of

    def run(tensors: tuple[Tensor, ...], weights: Any) -> tuple[Tensor, ...]:
        routed = routing(votes(*tensors), **weights)
        if return_couplings:
            return tuple(routed)
        couplings = ops.stop_gradient(routed.couplings)
        return tuple(routed._replace(couplings=couplings))

    loop = routing.differentiates_loop
    if routing.vote_free and loop:
        # XLA would compute all iterations twice. TensorFlow keeps of each what
        # its gradient needs, which is little beside the votes: a step of
        # γ-CapsNet takes 0.7 of the time so, and no more memory.
        return Routed(*run(tensors, weights))
    return Routed(*call(run, (tensors, weights), num_votes, loop))


def stay_factored(routing: Routing, blocks: list[Block], votes: int) -> bool:
    """Returns True if votes are better never held in memory.

    On a CPU, summing children that share matrices before they vote is 4 to 14
    times as fast. For others factored votes save memory, and half of a training
    step, unless a child has more components than its votes, or as many and
    gradients go through a loop. A single image is served faster with its votes
    in memory.

    Args:
        routing: The routing, which may need the votes themselves.
        blocks: The children and their maps.
        votes: Int. How many numbers the votes of one sample are.
    """
    if not routing.vote_free:
        return False
    (_, positions, _, components), (*_, dim) = map(ops.shape, blocks[0])
    if positions > 1:
        return True
    many = MANY_VOTES if in_step() else _TOO_MANY_VOTES
    fewest = components + int(routing.differentiates_loop)
    return fewest <= dim and votes >= many


def call(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    votes: int,
    differentiates_loop: bool,
) -> Any:
    """Returns `function(*arguments)`, compiled by XLA where that pays.

    It pays for many votes on TensorFlow, in the steps of Keras' `fit`,
    `evaluate` and `predict`. An exported signature must run without XLA, and is
    traced elsewhere. On JAX Keras compiles the whole step.

    Args:
        function: From nested structures of tensors to another, no variables.
        arguments: The structures.
        votes: Int. How many numbers the votes of one sample are.
        differentiates_loop: Bool. Whether gradients go through a loop, which
            XLA must then see together with its gradient: the forward pass is
            repeated in the backward pass, and keeps nothing in between.
    """
    on_tensorflow = keras.backend.backend() == "tensorflow"
    if votes < MANY_VOTES or not (on_tensorflow and in_step()):
        return function(*arguments)

    import tensorflow as tf

    # Variables are read outside, and gradients returned tensor by tensor.
    flatten: Callable[[Any], list[Any]] = keras.tree.flatten
    tensors = [tf.convert_to_tensor(leaf) for leaf in flatten(arguments)]
    jit = functools.partial(tf.function, jit_compile=True, autograph=False)

    def forward(*tensors: Tensor) -> Any:
        return function(*keras.tree.pack_sequence_as(arguments, tensors))

    if not differentiates_loop:
        return jit(forward)(*tensors)

    def backward(tensors: list[Tensor], upstream: list[Tensor]) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            outputs = flatten(forward(*tensors))
        return tape.gradient(
            outputs, tensors, upstream, unconnected_gradients="zero"
        )

    @tf.custom_gradient
    def differentiable(*tensors: Tensor) -> Any:
        def gradient(*upstream: Tensor) -> Any:
            return jit(backward)(list(tensors), list(upstream))

        return jit(forward)(*tensors), gradient

    return differentiable(*tensors)


def in_step() -> bool:
    """Returns True while a step of Keras is traced, and always on JAX.

    On TensorFlow this differs from an eager call, and from tracing a signature.
    """
    if keras.backend.backend() != "tensorflow":
        return True

    import tensorflow as tf

    # Keras runs steps by `Strategy.run`, with or without a strategy.
    context = tf.distribute.get_replica_context()
    return not tf.executing_eagerly() and context not in (None, _outside())


@functools.cache
def _outside() -> Any:
    """Returns the replica context of a thread that runs no step."""
    import tensorflow as tf

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(tf.distribute.get_replica_context).result()

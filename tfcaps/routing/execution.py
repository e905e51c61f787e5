"""Decides how votes are routed: held or factored, with XLA or without."""

import functools
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
from keras import ops

from tfcaps.ops import Tensor
from tfcaps.routing.factored_votes import Block, FactoredVotes
from tfcaps.routing.loop import unrolled
from tfcaps.routing.routing import Routed, Routing
from tfcaps.routing.votes import Votes

# Votes of a sample (i * j * d) from which routing gains more than it costs to
# compile it, a few seconds for each size of batch.
MANY_VOTES = 2**17
# Above so many votes of a sample they stay factored in eager calls too.
_TOO_MANY_VOTES = 2**20
# Parts of a batch: so many cores are busy, and the votes of a part near them.
_PARTS = 8


def route(
    routing: Routing,
    votes: Callable[..., Votes],
    inputs: Tensor,
    maps: tuple[Tensor, ...],
    weights: dict[str, Tensor],
    num_votes: int,
    return_couplings: bool,
) -> Routed:
    """Makes votes and routes them, compiled by XLA where that pays.

    Votes that are held XLA contracts on one core of a CPU. So each part of a
    batch is computed alone, from its votes to its parents, and parts side by
    side.

    Votes, of which one sample has `num_votes`, are made of `inputs`, poses or
    votes, and of `maps`, which all samples share, without variables. Of the
    `weights`, all that the routing takes besides, `activations` are of each
    sample. Couplings that are not wanted carry no gradient, which spares XLA
    the way back through them.
    """
    form, through_loop = votes(inputs, *maps), routing.differentiates_loop
    if not compiles(num_votes):
        return routing(form, **weights)
    # The graph leaves the form's operations out: each part makes its own votes.
    is_factored = isinstance(form, FactoredVotes)
    if through_loop and (is_factored or not routing.replays):
        # XLA would compute all iterations twice. TensorFlow keeps of each what
        # its gradient needs, which is little beside the votes.
        return routing(form, **weights)

    def outputs(routed: Routed) -> tuple[Tensor, ...]:
        if return_couplings:
            return tuple(routed)
        couplings = ops.stop_gradient(routed.couplings)
        return tuple(routed._replace(couplings=couplings))

    if routing.vote_free and not through_loop:

        @compiled
        def make_and_run(
            inputs: Tensor, maps: tuple[Tensor, ...], weights: dict[str, Tensor]
        ) -> tuple[Tensor, ...]:
            return outputs(routing(votes(inputs, *maps), **weights))

        return Routed(*make_and_run(inputs, maps, weights))

    @compiled
    def make(inputs: Tensor, maps: tuple[Tensor, ...]) -> Tensor:
        return votes(inputs, *maps).tensor

    @with_gradient
    def run(
        tensor: Tensor, weights: dict[str, Tensor], known: Sequence[Tensor] = ()
    ) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        recorded, results = form.of(tensor).recorded(known)
        if not routing.replays:
            return outputs(routing(recorded, **weights)), []
        with unrolled():
            return outputs(routing(recorded, **weights)), results

    whole = {"inputs": inputs}
    if "activations" in weights:
        whole["activations"] = weights["activations"]
    parts = []
    for part in _parts(whole):
        # Votes are made apart, and kept for the backward pass: XLA would turn
        # them while it computes their gradient, which takes longer than one
        # after the other. A layer of EM-CapsNet takes 0.6 of the time.
        tensor = make(part.pop("inputs"), maps)
        parts.append(run(tensor, {**weights, **part}))
    if not parts[1:]:
        return Routed(*parts[0])
    return Routed(*map(ops.concatenate, zip(*parts, strict=True)))


def compiles(num_votes: int) -> bool:
    """Returns True if XLA shall compile the routing of so many votes a sample.

    It pays for many votes on TensorFlow, in the steps of Keras' `fit`,
    `evaluate` and `predict`. An exported signature must run without XLA, and is
    traced elsewhere. On JAX Keras compiles the whole step.
    """
    on_tensorflow = keras.backend.backend() == "tensorflow"
    return num_votes >= MANY_VOTES and on_tensorflow and in_step()


def _parts(tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """Splits the samples of tensors, which TensorFlow routes side by side.

    The first axis of a tensor has as many rows for each sample of `inputs`.
    """
    import tensorflow as tf

    batch = tensors["inputs"].shape[0]
    number = min(_PARTS, batch or _PARTS)
    if tf.config.list_physical_devices("GPU"):
        number = 1
    if batch is None:
        batch = tf.maximum(tf.shape(tensors["inputs"])[0], 1)
    rows = {name: ops.shape(x)[0] // batch for name, x in tensors.items()}
    ends = [batch * k // number for k in range(number + 1)]
    return [
        {
            name: x[i * rows[name] : j * rows[name]]
            for name, x in tensors.items()
        }
        for i, j in itertools.pairwise(ends)
    ]


def stay_factored(routing: Routing, blocks: list[Block], votes: int) -> bool:
    """Returns True if votes are better never held in memory.

    On a CPU, summing children that share matrices before they vote is 4 to 14
    times as fast. For others factored votes save memory, and half of a training
    step, unless a child has more components than its votes, or as many and
    gradients go through a loop. A single image is served faster with its votes
    in memory, of which there are so many numbers.
    """
    if not routing.vote_free:
        return False
    (_, positions, _, components), (*_, dim) = map(ops.shape, blocks[0])
    if positions > 1:
        return True
    many = MANY_VOTES if in_step() else _TOO_MANY_VOTES
    fewest = components + int(routing.differentiates_loop)
    return fewest <= dim and votes >= many


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function of tensors, no variables, compiled by XLA."""
    import tensorflow as tf

    jit = tf.function(function, jit_compile=True, autograph=False)
    # Variables are read outside.
    return lambda *arguments: jit(*_tensors(arguments))


def with_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function, compiled by XLA as its gradient is.

    Nothing is kept in between but the list of tensors that it returns besides,
    which the backward pass gives as the last argument. That of TensorFlow's own
    gradient XLA would copy, votes once for each use; and it needs the whole of
    a loop to compute the gradient.
    """
    import tensorflow as tf

    forward, flatten = compiled(function), keras.tree.flatten

    def backward(arguments: Any, known: Any, upstream: list[Tensor]) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            outputs, _ = function(*arguments, known)
        return tape.gradient(
            flatten(outputs),
            arguments,
            upstream,
            unconnected_gradients="zero",
        )

    backward = compiled(backward)

    def call(*arguments: Any) -> Any:
        arguments = _tensors(arguments)

        @tf.custom_gradient
        def differentiable(*tensors: Tensor) -> Any:
            inside = keras.tree.pack_sequence_as(arguments, [*tensors])
            outputs, known = forward(*inside)

            def gradient(*upstream: Tensor) -> Any:
                return flatten(backward(inside, known, [*upstream]))

            return outputs, gradient

        return differentiable(*flatten(arguments))

    return call


def _tensors(arguments: Any) -> Any:
    """Returns nested arguments whose leaves are tensors."""
    import tensorflow as tf

    return keras.tree.map_structure(tf.convert_to_tensor, arguments)


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

"""One class layer, computed as public code computes it and as tfcaps does.

The public formulations are written afresh, in plain TensorFlow, as traced
functions. Those of dynamic routing have no bias, and with `gradient="last"` the
votes of all but the last iteration are constants. EM routes matrices of 4x4.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from benchmarks.measure import Row, Settings, interleaved
from tfcaps.layers import ClassCaps, ConvCaps
from tfcaps.routing import DynamicRouting, EMRouting

# What is compared, by the gradient that it has, and of EM routing.
CANDIDATES = {
    "last": ("tiled", "einsum", "tfcaps"),
    "full": ("einsum", "tfcaps"),
    "em": ("tiled", "tfcaps"),
}

_TEMPERATURE, _EPSILON = 0.03, 0.01


class Size(NamedTuple):
    """Sizes of a class layer; at first those of DR-CapsNet on MNIST."""

    batch: int = 64
    children: int = 1152
    child_dim: int = 8
    parents: int = 10
    dim: int = 16
    iterations: int = 3


# Windows of 8 images, as many as the first routed layer of `em_capsnet` has.
OF_EM = Size(392, 72, 16, 16, 16, 2)


def measure(settings: Settings) -> list[Row]:
    """Times all candidates, forward and with gradients."""
    rows = []
    for gradient, names in CANDIDATES.items():
        size = OF_EM if gradient == "em" else Size()
        if settings.quick:
            size = size._replace(batch=2)
        inputs = (size.batch, size.children, size.child_dim)
        calls, steps = (
            interleaved(
                f"formulations, gradient {gradient}, {kind}",
                {
                    name: make_step(name, gradient, size, kind == "step")
                    for name in names
                },
                settings.rounds,
            )
            for kind in ("forward", "step")
        )
        for name in names:
            base = f"tfcaps, gradient {gradient}"
            what = f"{name}, gradient {gradient}"
            timings = calls[name], steps[name]
            rows.append(Row(what, inputs, *timings, base))
    return rows


def make_step(
    name: str, gradient: str, size: Size, backward: bool = True
) -> Callable[[], list[Any]]:
    """Returns a step of a candidate, to poses and gradients, as Keras runs it.

    The gradients are those of the children and the transformation, of half the
    squared poses.
    """
    inputs = _normal(size.batch, size.children, size.child_dim)
    forward, weight = _forward(name, gradient, size)

    def step(children: Any) -> list[Any]:
        if not backward:
            return [forward(children)]
        with tf.GradientTape() as tape:
            tape.watch(children)
            poses = forward(children)
        gradients = tape.gradient(
            poses, [children, weight], output_gradients=poses
        )
        return [poses, *gradients]

    # Only in `Strategy.run` does tfcaps compile routing.
    strategy = tf.distribute.get_strategy()
    traced = tf.function(
        lambda children: strategy.run(step, [children]), autograph=False
    )

    def call() -> Any:
        outputs = traced(inputs / size.child_dim**0.5)
        tf.test.experimental.sync_devices()  # a GPU returns before it is done
        return outputs

    return call


def _normal(*shape: int, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    return tf.constant(generator.normal(0.0, 1.0, shape), tf.float32)


def _forward(
    name: str, gradient: str, size: Size
) -> tuple[Callable[[Any], Any], tf.Variable]:
    """Returns a function from children to poses, and its weight."""
    is_em = gradient == "em"
    sides = (4, 4) if is_em else (size.child_dim, size.dim)
    weight = 0.1 * _normal(size.children, size.parents, *sides, seed=1)
    if is_em and name != "tfcaps":
        variable = tf.Variable(weight)
        return lambda children: _em(children, variable, size), variable
    if name != "tfcaps":
        make = {"tiled": _tiled, "einsum": _einsum}[name]
        variable = tf.Variable(weight)

        def forward(children: Any) -> Any:
            votes, sums, agreement = make(children, variable)
            return _route(votes, sums, agreement, size.iterations, gradient)

        return forward, variable
    if is_em:
        return _conv_caps(weight, size)
    layer = ClassCaps(
        size.parents,
        size.dim,
        routing=DynamicRouting(size.iterations, gradient),
        use_bias=False,
    )
    layer.build((None, size.children, size.child_dim))
    layer.transformation.assign(weight)
    return layer, layer.transformation.value


def _conv_caps(
    weight: Any, size: Size
) -> tuple[Callable[[Any], Any], tf.Variable]:
    """Routes windows of 3x3 that share no child, 49 an image."""
    side = 7 if size.batch % 49 == 0 else 1
    routing = EMRouting(size.iterations, _TEMPERATURE, _EPSILON)
    layer = ConvCaps(size.parents, 16, 3, 3, routing=routing, matrix=True)
    windows = (-1, side, side, 3, 3, size.children // 9, 16)
    maps = (-1, 3 * side, 3 * side, size.children // 9, 16)
    layer.build((None, *maps[1:]))
    layer.transformation.assign(tf.reshape(weight, layer.transformation.shape))

    def forward(children: Any) -> Any:
        cut = tf.transpose(tf.reshape(children, windows), (0, 1, 3, 2, 4, 5, 6))
        return tf.reshape(layer(tf.reshape(cut, maps)), (-1, size.parents, 16))

    return forward, layer.transformation.value


def _tiled(children: Any, weight: Any) -> Any:
    """A vote is a product of matrices of its own, as in the public REM code."""
    batch, parents = children.shape[0], weight.shape[1]
    rows = tf.tile(children[:, :, None, None], [1, 1, parents, 1, 1])
    maps = tf.tile(tf.expand_dims(weight, 0), [batch, 1, 1, 1, 1])
    return (
        tf.squeeze(tf.matmul(rows, maps), 3),
        lambda shares, votes: tf.reduce_sum(shares[..., None] * votes, 1),
        lambda votes, poses: tf.reduce_sum(votes * poses[:, None], -1),
    )


def _einsum(children: Any, weight: Any) -> Any:
    return (
        tf.einsum("bik,ijkd->bijd", children, weight),
        lambda shares, votes: tf.einsum("bij,bijd->bjd", shares, votes),
        lambda votes, poses: tf.einsum("bijd,bjd->bij", votes, poses),
    )


def _route(
    votes: Any,
    weighted_sum: Callable[[Any, Any], Any],
    agreement: Callable[[Any, Any], Any],
    iterations: int,
    gradient: str,
) -> Any:
    earlier = tf.stop_gradient(votes) if gradient == "last" else votes
    logits = tf.zeros(votes.shape[:3])
    for _ in range(iterations - 1):
        shares = tf.nn.softmax(logits, 2)
        logits += agreement(earlier, _squash(weighted_sum(shares, earlier)))
    return _squash(weighted_sum(tf.nn.softmax(logits, 2), votes))


def _em(children: Any, weight: Any, size: Size) -> Any:
    """EM routing as the public code of matrix capsules writes it."""
    activations = tf.norm(children, axis=-1)[:, :, None, None]
    rows = tf.reshape(children, (-1, size.children, 1, 4, 4))
    rows = tf.tile(rows, [1, 1, size.parents, 1, 1])
    maps = tf.tile(weight[None], [size.batch, 1, 1, 1, 1])
    shape = (-1, size.children, size.parents, 16)
    votes = tf.reshape(tf.matmul(rows, maps), shape)
    shares = tf.fill([size.batch, *shape[1:3], 1], 1.0 / size.parents)
    for step in range(size.iterations):
        weights = shares * activations
        mass = tf.reduce_sum(weights, 1, keepdims=True)
        means = tf.reduce_sum(weights * votes, 1, keepdims=True) / mass
        squares = tf.square(votes - means)
        variances = tf.reduce_sum(weights * squares, 1, keepdims=True) / mass
        variances += _EPSILON
        width = 0.5 * tf.reduce_sum(tf.math.log(variances), -1, keepdims=True)
        heat = _TEMPERATURE * (1 - 0.95 ** (step + 1))
        logits = tf.math.log_sigmoid(-heat * mass * width) - width
        distances = tf.reduce_sum(squares / variances, -1, keepdims=True)
        shares = tf.nn.softmax(logits - 0.5 * distances, 2)
    return tf.squeeze(means, 1)


def _squash(sums: Any) -> Any:
    square = tf.reduce_sum(tf.square(sums), -1, keepdims=True)
    return square / (1.0 + square) * sums / tf.sqrt(square + 1e-7)

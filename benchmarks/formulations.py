"""One class layer, computed as public code computes it and as tfcaps does.

The public formulations are written afresh, in plain TensorFlow, as traced
functions. All have dynamic routing without bias, and with `gradient="last"` the
votes of all but the last iteration are constants.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from benchmarks import memory
from benchmarks.measure import Row, Settings, interleaved
from benchmarks.steps import as_step, random_tensor, with_gradients
from tfcaps.layers import ClassCaps
from tfcaps.routing import DynamicRouting

# What is compared, by the gradient that it has.
CANDIDATES = {
    "last": ("tiled", "einsum", "tfcaps", "tfcaps as exported"),
    "full": ("map", "einsum", "tfcaps", "tfcaps as exported"),
}
_TOLERANCE = 1e-4


class Size(NamedTuple):
    """Sizes of a class layer; at first those of DR-CapsNet on MNIST."""

    batch: int = 64
    children: int = 1152
    child_dim: int = 8
    parents: int = 10
    dim: int = 16
    iterations: int = 3


def measure(settings: Settings) -> list[Row]:
    """Times all candidates, forward and with gradients, and their memory."""
    size = Size(batch=2) if settings.quick else Size()
    rows = []
    for gradient, names in CANDIDATES.items():
        forward, step = (
            {
                name: make_step(name, gradient, size._asdict(), backward)
                for name in names
            }
            for backward in (False, True)
        )
        check({name: run() for name, run in step.items()})
        title = f"formulations, gradient {gradient}"
        times = interleaved(f"{title}, forward", forward, settings.rounds)
        times_of_steps = interleaved(f"{title}, step", step, settings.rounds)
        for name in names:
            use = memory.Use(None, None, 0.0)
            if name == "tfcaps" or not settings.quick:
                use = memory.of_step(
                    f"{title}, step: {name}",
                    "benchmarks.formulations:make_step",
                    name=name,
                    gradient=gradient,
                    size=size._asdict(),
                )
            rows.append(
                Row(
                    f"{name}, gradient {gradient}",
                    (size.batch, size.children, size.child_dim),
                    times[name],
                    times_of_steps[name],
                    f"tfcaps, gradient {gradient}",
                    use.peak_mb,
                    use.process_mb,
                )
            )
    return rows


def make_step(
    name: str, gradient: str, size: dict[str, int], backward: bool = True
) -> Callable[[], list[Any]]:
    """Returns a step of a candidate, to poses and gradients.

    The gradients are those of the children and the transformation.

    Args:
        name: A name in `CANDIDATES`.
        gradient: `"last"` or `"full"`.
        size: The fields of `Size`.
        backward: Bool. Compute gradients. Defaults to `True`.
    """
    sizes = Size(**size)
    children = random_tensor(sizes.batch, sizes.children, sizes.child_dim)
    children = children / sizes.child_dim**0.5
    forward, weight = _forward(name, gradient, sizes)
    function = with_gradients(forward, [weight]) if backward else forward
    return as_step(function, children, like_keras=name != "tfcaps as exported")


def check(results: dict[str, list[Any]]) -> None:
    """Compares poses and gradients of all candidates with those of tfcaps.

    Raises:
        RuntimeError: If they differ, gradients as a share of the largest one.
    """
    for name, tensors in results.items():
        for what, tensor, expected in zip(
            ("poses", "gradients of children", "gradients of the weight"),
            tensors,
            results["tfcaps"],
            strict=True,
        ):
            scale = 1.0 if what == "poses" else np.abs(expected).max()
            error = np.abs(tensor - expected).max() / scale
            if not error <= _TOLERANCE:
                raise RuntimeError(
                    f"All formulations must give the same {what}, to "
                    f"{_TOLERANCE}. Received: {name!r} differs from tfcaps by "
                    f"{error:.2g}."
                )


def _forward(
    name: str, gradient: str, size: Size
) -> tuple[Callable[[Any], Any], tf.Variable]:
    """Returns a function from children to poses, and its weight."""
    weight = random_tensor(
        size.children,
        size.parents,
        size.child_dim,
        size.dim,
        scale=0.1,
        seed=1,
    )
    if name in _PUBLIC:
        variable = tf.Variable(weight)

        def forward(children: Any) -> Any:
            return _PUBLIC[name](children, variable, size.iterations, gradient)

        return forward, variable
    layer = ClassCaps(
        size.parents,
        size.dim,
        routing=DynamicRouting(size.iterations, gradient),
        use_bias=False,
    )
    layer.build((None, size.children, size.child_dim))
    layer.transformation.assign(weight)
    return layer, layer.transformation.value


def _tiled(children: Any, weight: Any, iterations: int, gradient: str) -> Any:
    """A vote is a product of matrices of its own, as in the public REM code."""
    batch, parents = children.shape[0], weight.shape[1]
    rows = tf.tile(children[:, :, None, None], [1, 1, parents, 1, 1])
    maps = tf.tile(tf.expand_dims(weight, 0), [batch, 1, 1, 1, 1])
    return _route(
        tf.squeeze(tf.matmul(rows, maps), 3),
        lambda shares, votes: tf.reduce_sum(shares[..., None] * votes, 1),
        lambda votes, poses: tf.reduce_sum(votes * poses[:, None], -1),
        iterations,
        gradient,
    )


def _einsum(children: Any, weight: Any, iterations: int, gradient: str) -> Any:
    return _route(
        tf.einsum("bik,ijkd->bijd", children, weight),
        lambda shares, votes: tf.einsum("bij,bijd->bjd", shares, votes),
        lambda votes, poses: tf.einsum("bijd,bjd->bij", votes, poses),
        iterations,
        gradient,
    )


def _map(children: Any, weight: Any, iterations: int, gradient: str) -> Any:
    """Votes are made sample by sample, as in CapsNet-Keras: `[b, j, i, d]`."""
    maps = tf.transpose(weight, (1, 0, 3, 2))
    columns = tf.tile(
        children[:, None, :, :, None], [1, weight.shape[1], 1, 1, 1]
    )
    votes = tf.map_fn(lambda column: tf.matmul(maps, column), columns)
    return _route(
        tf.squeeze(votes, -1),
        lambda shares, votes: tf.squeeze(shares[:, :, None] @ votes, 2),
        lambda votes, poses: tf.squeeze(votes @ poses[..., None], -1),
        iterations,
        gradient,
        parents_axis=1,
    )


_PUBLIC = {"tiled": _tiled, "einsum": _einsum, "map": _map}


def _route(
    votes: Any,
    weighted_sum: Callable[[Any, Any], Any],
    agreement: Callable[[Any, Any], Any],
    iterations: int,
    gradient: str,
    parents_axis: int = 2,
) -> Any:
    """Dynamic routing, whatever the order of the votes' axes."""
    earlier = tf.stop_gradient(votes) if gradient == "last" else votes
    logits = tf.zeros(votes.shape[:3])
    for _ in range(iterations - 1):
        shares = tf.nn.softmax(logits, parents_axis)
        poses = _squash(weighted_sum(shares, earlier))
        logits += agreement(earlier, poses)
    return _squash(weighted_sum(tf.nn.softmax(logits, parents_axis), votes))


def _squash(sums: Any) -> Any:
    square = tf.reduce_sum(tf.square(sums), -1, keepdims=True)
    return square / (1.0 + square) * sums / tf.sqrt(square + 1e-7)

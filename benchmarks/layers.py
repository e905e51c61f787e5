"""Every routed layer at the size that it has in a published network."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from benchmarks import memory
from benchmarks.measure import Row, Settings, interleaved
from benchmarks.steps import as_step, random_tensor, with_gradients
from tfcaps.graphs import is_routed
from tfcaps.layers import ClassCaps, ConvCaps, ConvCaps3D, PrimaryCaps
from tfcaps.routing import DynamicRouting

_QUICK_BATCH = 2


class Case(NamedTuple):
    """A layer and what it is called with.

    Attributes:
        make: Makes the layer.
        inputs: Shape of a sample.
        batch: Samples in a step.
    """

    make: Callable[[], keras.layers.Layer]
    inputs: tuple[int, ...]
    batch: int


def _class_caps(routing: Any) -> Case:
    return Case(partial(ClassCaps, 10, 16, routing), (1152, 8), 64)


CASES = {
    "ClassCaps, dynamic": _class_caps(3),
    "ClassCaps, dynamic, full gradient": _class_caps(
        DynamicRouting(gradient="full")
    ),
    "ClassCaps, scaled_distance": _class_caps("scaled_distance"),
    "ClassCaps, self_attention": _class_caps("self_attention"),
    "ClassCaps, uniform": _class_caps("uniform"),
    "ClassCaps, regularized": _class_caps("regularized"),
    'ClassCaps, share="type"': Case(
        partial(ClassCaps, 10, 16, share="type"), (12, 12, 16, 16), 64
    ),
    "ConvCaps, dynamic": Case(
        partial(ConvCaps, 16, 16, 3, 2), (14, 14, 16, 16), 32
    ),
    "ConvCaps, em, matrix": Case(
        partial(ConvCaps, 16, 16, 3, 2, routing="em", matrix=True),
        (14, 14, 16, 16),
        8,
    ),
    "ConvCaps3D, dynamic": Case(partial(ConvCaps3D, 32, 8), (4, 4, 32, 8), 32),
    "PrimaryCaps": Case(partial(PrimaryCaps, 32, 8, 9, 2), (20, 20, 256), 64),
}
# One of each kind, for `--quick`.
_QUICK_CASES = ("ClassCaps, dynamic", "ConvCaps3D, dynamic", "PrimaryCaps")


def measure(settings: Settings) -> list[Row]:
    """Times every layer, forward and with gradients, and its memory."""
    rows = []
    for name in _QUICK_CASES if settings.quick else CASES:
        case = CASES[name]
        batch = _QUICK_BATCH if settings.quick else case.batch
        inputs = (batch, *case.inputs)
        times = interleaved(
            f"layers, {name}",
            {
                "forward": make_step(name, batch, backward=False),
                "step": make_step(name, batch),
            },
            settings.rounds,
        )
        use = memory.of_step(
            f"layers, {name}: step",
            "benchmarks.layers:make_step",
            steps=3,
            name=name,
            batch=batch,
        )
        row = Row(name, inputs, times["forward"], times["step"])
        rows.append(row._replace(peak_mb=use.peak_mb))
    return rows


def make_step(
    name: str, batch: int, backward: bool = True
) -> Callable[[], list[Any]]:
    """Returns a step of a layer, with the gradients of inputs and weights.

    A routing that learns from labels gets some.

    Args:
        name: A name in `CASES`.
        batch: Int. Samples in a step.
        backward: Bool. Compute gradients. Defaults to `True`.
    """
    case = CASES[name]
    inputs = random_tensor(batch, *case.inputs, scale=0.3)
    layer = case.make()
    layer.build(inputs.shape)
    arguments: dict[str, Any] = {}
    if is_routed(layer) and layer.routing.explicit_activations:
        arguments["return_activations"] = True
    if backward and is_routed(layer) and layer.routing.learns_from_labels:
        labels = tf.range(batch) % layer.num_capsules
        arguments.update(labels=labels, training=True)
    forward = partial(layer, **arguments)
    if not backward:
        return as_step(forward, inputs)
    weights = [weight.value for weight in layer.trainable_weights]
    return as_step(with_gradients(forward, weights), inputs)

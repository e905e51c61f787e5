"""Carries the state of an optimiser over to a compacted network."""

from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps import rem
from tfcaps.rem.gradient_ramp import GradientRamp

# Up to here float32 has every integer.
_MOST_TAGS = 2**24
# Biases from here on are those of capsules that are never active.
_MARKS = 1e4

Places = NDArray[np.integer]


def carry_on(
    before: keras.Model,
    after: keras.Model,
    network: keras.Model,
    smaller: keras.Model,
) -> None:
    """Gives the optimiser and the losses of a stage those of the last one.

    The count of steps, on which all schedules depend, and Adam's moments of the
    weights that are left. Moments that began at 0 would be far too small beside
    a count that goes on, for which Adam takes them as they are: its first steps
    would be up to six times as long as the learning rate says.

    Args:
        before: What was trained.
        after: What will be trained, compiled.
        network: The network in `before`. Its weights are overwritten.
        smaller: What `rem.compact` returned for it.
    """
    for old, new in zip(_ramps(before), _ramps(after), strict=True):
        new.step.assign(old.step)
    old_one, new_one = _inner(before), _inner(after)
    if not new_one.built:
        after.optimizer.build(after.trainable_variables)
    new_one.iterations.assign(old_one.iterations)
    places = _places(network, smaller)
    numbers = {id(v): k for k, v in enumerate(old_one._trainable_variables)}
    for number, variable in enumerate(new_one._trainable_variables):
        old, at = places[id(variable)]
        for name in ("_momentums", "_velocities"):
            moments = getattr(old_one, name)[numbers[id(old)]]
            left = getattr(new_one, name)[number]
            left.assign(_at(ops.convert_to_numpy(moments), at, left.shape))


def _ramps(model: keras.Model) -> list[GradientRamp]:
    return [layer for layer in model.layers if isinstance(layer, GradientRamp)]


def _inner(model: keras.Model) -> Any:
    return getattr(model.optimizer, "inner_optimizer", model.optimizer)


def _places(
    network: keras.Model, smaller: keras.Model
) -> dict[int, tuple[Any, Places | None]]:
    """Returns where each weight of a compacted network stood.

    Each number that is not 0 gets its place as its value, and what `compact`
    leaves tells the places. They count if the numbers that were there are those
    of the compacted network; a bias to which `compact` added a constant channel
    has none.

    Returns:
        For each trained weight, by its identity, that of the network and the
        places in it, counted from 0; -1 for what was 0. `None` if they are not
        known.
    """
    values = {}
    for variable in network.trainable_variables:
        array = ops.convert_to_numpy(variable)
        values[id(variable)] = array
        tags = np.arange(1, array.size + 1).reshape(array.shape)
        # What is 0 has no effect, and large numbers mark what is never active.
        special = (array == 0) | (np.abs(array) >= _MARKS)
        variable.assign(np.where(special, array, tags).astype(array.dtype))
    places = {}
    tagged = rem.compact(network)
    for layer in smaller.layers:
        triples = zip(
            network.get_layer(layer.name).trainable_variables,
            tagged.get_layer(layer.name).trainable_variables,
            layer.trainable_variables,
            strict=False,
        )
        for old, tag, new in triples:
            at = _checked(values[id(old)], tag, new)
            places[id(new)] = old, at
    return places


def _checked(array: Any, tag: Any, new: Any) -> Places | None:
    """Returns the places that tags tell, if they are right."""
    tags, left = (
        ops.convert_to_numpy(v).astype(np.float64) for v in (tag, new)
    )
    is_known = array.size < _MOST_TAGS and tags.shape == left.shape
    if not is_known or np.any(
        (tags < 0) | (tags > array.size) | (tags % 1 > 0)
    ):
        return None
    at = tags.astype(np.int64) - 1
    is_right = np.array_equal(_at(array, at, left.shape), left)
    return at if is_right else None


def _at(array: Any, at: Places | None, shape: tuple[int, ...]) -> Any:
    """Returns the values at places, 0 at -1; the mean if they are not known."""
    if at is None:
        return np.full(shape, array.mean(), array.dtype)
    return np.where(at < 0, 0, array.ravel()[at]).astype(array.dtype)

"""Models without the parts that pruning has left without effect."""

from collections import Counter
from typing import Any, NamedTuple

import keras
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tfcaps.graphs import (
    calls_of,
    check_unquantized,
    clone_with_call,
    functional,
    keep_pruned,
    of_same_kind,
    without_couplings,
)
from tfcaps.rem.compaction.rules import rule_for
from tfcaps.rem.compaction.units import AXIS, Ids, Mask, Rule, Shape, Values
from tfcaps.rem.finite import check_weights


def compact(model: keras.Model) -> keras.Model:
    """Returns a smaller model with the same outputs.

    Magnitude pruning leaves zeros in weights of full size. Where they leave a
    whole unit without effect, that unit can go:

    - a primary or convolutional capsule type of which every child has a
      transformation of zero towards every parent, below a layer whose routing
      ignores it (dynamic, uniform, self-attention, and scaled-distance routing
      over `"capsule"`);
    - a channel of a convolution that no layer uses, or whose own kernel is
      zero: what it adds to the next convolution goes into that one's bias;
    - a hidden capsule, or type of capsules, for which no child votes and that
      has no bias: it still competes, as one of the routing's `silent_parents`;
    - with EM routing, a type whose activation is 0, see `EMRouting.absent`.

    What a sum adds up leaves together. Outputs are the same but for rounding,
    since sums have fewer terms. Layers of kinds unknown here stay, and so does
    whatever feeds them.

    Args:
        model: A functional or sequential model. It is not changed.

    Returns:
        A `keras.Model` with the same name, inputs and outputs, and weights of
        its own. Trees and couplings have the children that are left, and a
        saliency map is a mean over their types. Of a model that
        `add_couplings` made it is the network in it.

    Raises:
        ValueError: If the model is neither functional nor built, a weight is
            not finite, or the model has its own `train_step` that the smaller
            one would lose.

    Example:

    >>> from tfcaps.models import dr_capsnet
    >>> model = dr_capsnet((17, 17, 1), 2, filters=4, primary_types=3)
    >>> kernel = model.get_layer("conv").kernel
    >>> _ = kernel.assign(kernel.numpy() * [1, 0, 1, 1])
    >>> compact(model).get_layer("conv").filters
    3
    """
    check_unquantized(model)
    keep_pruned(model)
    check_weights(model.weights)
    given = without_couplings(model)
    model = functional(given)
    units = Units(model)
    values = units.constants()
    keep = units.needed(values)[units.groups]
    rebuilt = {
        id(call.layer): _rebuilt(call, keep, values) for call in units.calls
    }
    copy = clone_with_call(
        model,
        lambda layer, *args, **kwargs: rebuilt[id(layer)][0](*args, **kwargs),
    )
    for layer, weights in rebuilt.values():
        if weights:
            layer.set_weights(weights)
    return of_same_kind(given, copy.input, copy.output)


def _rebuilt(call: "Call", keep: Mask, values: Values) -> tuple[Any, list[Any]]:
    """Returns a layer for what is left of a call, and its weights."""
    layer = call.layer
    if not isinstance(layer, keras.Layer):
        return layer, []  # an operation without weights
    if call.rule is None:
        return type(layer).from_config(layer.get_config()), layer.get_weights()
    return call.rule.rebuild(
        keep[call.inputs[0]],
        keep[call.outputs[0]],
        [values[ids] for ids in call.inputs],
    )


class Call(NamedTuple):
    """A call of a layer or an operation, and the numbers of its units."""

    layer: Any
    shape: Shape  # of the first input
    inputs: list[Ids]
    outputs: list[Ids]
    rule: Rule | None


class Units:
    """The units of a functional model, numbered, and their groups.

    With `frozen_stay` layers that are not trained keep their units.

    Attributes:
        calls: The calls, in the order in which they happen.
        groups: Group of each unit.
        pinned: Whether each group stays, whatever its weights.
    """

    def __init__(self, model: keras.Model, frozen_stay: bool = False):
        copy, calls = calls_of(model)
        self._numbers: dict[int, Ids] = {}
        times = Counter(id(call.layer) for call in calls)

        def numbers(tensor: Any) -> Ids:
            if id(tensor) not in self._numbers:
                start = sum(map(len, self._numbers.values()))
                every = np.arange(start, start + num_units(tensor))
                self._numbers[id(tensor)] = every
            return self._numbers[id(tensor)]

        pinned = [numbers(tensor) for tensor in (*copy.inputs, *copy.outputs)]
        ties: list[tuple[Ids, Ids]] = []
        self.calls = []
        for layer, taken, given, in_training in calls:
            is_known = times[id(layer)] == 1 and not in_training
            if frozen_stay and not getattr(layer, "trainable", True):
                is_known = False
            shapes = [tuple(tensor.shape) for tensor in taken]
            rule = None
            if is_known:
                rule = rule_for(layer, shapes, tuple(given[0].shape))
            inputs, outputs = (list(map(numbers, x)) for x in (taken, given))
            if rule is None or rule.stays(len(outputs)):
                pinned += outputs
            if rule is None:
                pinned += inputs
            else:
                ties += rule.tied_units(inputs, outputs)
            shape = shapes[0] if shapes else ()
            self.calls.append(Call(layer, shape, inputs, outputs, rule))
        total = sum(map(len, self._numbers.values()))
        one, other = np.concatenate(
            [np.zeros((2, 0), int), *map(np.stack, ties)], axis=1
        )
        edges = np.ones(len(one)), (one, other)
        count, self.groups = connected_components(
            coo_array(edges, (total, total)), directed=False
        )
        self.pinned = np.zeros(count, bool)
        self.pinned[self.groups[np.concatenate(pinned)]] = True

    def constants(self) -> Values:
        """Returns the value of each unit, NaN if images change it."""
        values = np.full(len(self.groups), np.nan)
        for call in self.calls:
            if call.rule is not None:
                known = call.rule.constants([values[k] for k in call.inputs])
                for ids, of_output in zip(call.outputs, known, strict=False):
                    values[ids] = of_output
        return values

    def needed(self, values: Values) -> Mask:
        """Returns a mask of the groups that something depends on."""
        keep = self.pinned.copy()
        for call in self.calls:
            if call.rule is not None and call.rule.competes:
                keep[self.groups[call.outputs[0]][~call.rule.silent()]] = True
        self._grow(keep, values)
        for ids in self._numbers.values():
            if len(ids) and not keep[self.groups[ids]].any():
                keep[self.groups[ids[0]]] = True  # no layer without units
                self._grow(keep, values)
        return keep

    def _grow(self, keep: Mask, values: Values) -> None:
        """Adds the groups that those which are kept depend on."""
        before = -1
        while before < (before := keep.sum()):
            for call in reversed(self.calls):
                if call.rule is not None:
                    wanted = keep[self.groups[call.outputs[0]]]
                    inputs = [values[ids] for ids in call.inputs]
                    used = call.rule.used(wanted, inputs)
                    keep[self.groups[call.inputs[0]][used]] = True


def num_units(tensor: Any) -> int:
    """Returns the number of units of a tensor."""
    axis = AXIS.get(len(tensor.shape))
    return 0 if axis is None else int(tensor.shape[axis] or 0)

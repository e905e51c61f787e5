"""Models without the parts that pruning has left without effect."""

from collections import Counter
from typing import Any, NamedTuple

import keras
import numpy as np

from tfcaps.graphs import functional, same_layers
from tfcaps.rem.compaction.rules import rule_for
from tfcaps.rem.compaction.units import Mask, Rule, Values


def compact(model: keras.Model) -> keras.Model:
    """Returns a smaller model with the same outputs.

    Magnitude pruning leaves zeros in weights of full size. Where they leave a
    whole unit without effect, that unit can go:

    - a child capsule whose transformation towards every parent is zero, of a
      layer whose routing ignores it (dynamic, uniform, self-attention, and
      scaled-distance routing over `"capsule"`): `CompactCaps` takes the place
      of `ClassCaps` and still returns the couplings of all children;
    - a primary or convolutional capsule type without a child that votes;
    - a channel of a convolution that no layer uses, or whose own kernel is
      zero: what it adds to the next convolution goes into that one's bias.

    Outputs are the same but for rounding, since sums have fewer terms.
    Capsules that compete as parents stay, and so do layers of kinds unknown
    here and whatever feeds them, the sums of DeepCaps among them.

    Args:
        model: A functional or sequential model. It is not changed.

    Returns:
        A `keras.Model` with the same name, inputs and outputs, and weights of
        its own. Couplings of hidden `ConvCaps` lose the removed types.

    Example:

    >>> from tfcaps.models import dr_capsnet
    >>> model = dr_capsnet((17, 17, 1), 2, filters=4, primary_types=3)
    >>> kernel = model.get_layer("conv").kernel
    >>> _ = kernel.assign(kernel.numpy() * [1, 0, 1, 1])
    >>> compact(model).get_layer("conv").filters
    3
    """
    model = functional(model)
    graph = _Graph(model)
    constants = graph.constants()
    masks = graph.masks(constants)
    layers: dict[int, Any] = {}
    weights: list[tuple[Any, list[Any]]] = []
    for call in graph.calls:
        if id(call.layer) in layers:
            continue
        layer, arrays = _shrunk(call, constants, masks)
        layers[id(call.layer)] = layer
        weights.append((layer, arrays))
    copy = same_layers(
        model, lambda layer, *args, **kwargs: layers[id(layer)](*args, **kwargs)
    )
    for layer, arrays in weights:
        if arrays:
            layer.set_weights(arrays)
    return keras.Model(copy.input, copy.output, name=model.name)


class _Call(NamedTuple):
    """A layer, the tensors it takes and gives, and its rule if it has one."""

    layer: Any
    inputs: list[Any]
    outputs: list[Any]
    rule: Rule | None


class _Graph:
    """The calls of a model, in the order in which they happen.

    Units are the channels of a feature map and the types of a capsule map.
    """

    def __init__(self, model: keras.Model):
        self.calls: list[_Call] = []
        in_training = set()

        def record(layer: Any, *args: Any, **kwargs: Any) -> Any:
            outputs = layer(*args, **kwargs)
            inputs = keras.tree.flatten((args, kwargs))
            given = [x for x in inputs if isinstance(x, keras.KerasTensor)]
            call = _Call(layer, given, keras.tree.flatten(outputs), None)
            self.calls.append(call)
            if kwargs.get("training"):
                in_training.add(id(layer))
            return outputs

        copy = same_layers(model, record)
        self.inputs, self.outputs = copy.inputs, copy.outputs
        times = Counter(id(call.layer) for call in self.calls)
        self.calls = [
            call._replace(rule=rule_for(call.layer, call.inputs[0].shape))
            if times[id(call.layer)] == len(call.inputs) == 1
            and id(call.layer) not in in_training
            else call
            for call in self.calls
        ]

    def constants(self) -> dict[int, Values]:
        """Returns the values of units that no image changes, NaN for others."""
        constants = {id(tensor): _varying(tensor) for tensor in self.inputs}
        for call in self.calls:
            for tensor in (*call.inputs, *call.outputs):
                constants.setdefault(id(tensor), _varying(tensor))
            if call.rule is not None and len(call.outputs) == 1:
                values = call.rule.constants(constants[id(call.inputs[0])])
                if values is not None:
                    constants[id(call.outputs[0])] = values
        return constants

    def masks(self, constants: dict[int, Values]) -> dict[int, Mask]:
        """Returns which units of each tensor something depends on."""
        masks = {key: np.zeros(len(v), bool) for key, v in constants.items()}
        for tensor in (*self.inputs, *self.outputs):
            masks[id(tensor)][:] = True
        while self._grow(masks, constants):
            pass
        for mask in masks.values():
            if len(mask) and not mask.any():
                mask[0] = True  # no layer without units
                while self._grow(masks, constants):
                    pass
        return masks

    def _grow(
        self, masks: dict[int, Mask], constants: dict[int, Values]
    ) -> bool:
        """Adds to masks what calls need; returns whether there was any."""
        before = sum(mask.sum() for mask in masks.values())
        for call in reversed(self.calls):
            taken = [masks[id(tensor)] for tensor in call.inputs]
            given = [masks[id(tensor)] for tensor in call.outputs]
            if call.rule is None:
                for mask in (*taken, *given):
                    mask[:] = True
                continue
            if not call.rule.shrinks:
                for mask in given:
                    mask[:] = True
            values = constants[id(call.inputs[0])]
            taken[0] |= call.rule.needs(given[0], values)
            given[0] |= call.rule.follows(taken[0], given[0])
        return bool(sum(mask.sum() for mask in masks.values()) > before)


def _varying(tensor: Any) -> Values:
    has_units = len(tensor.shape) in (4, 5)
    return np.full(tensor.shape[3] if has_units else 0, np.nan)


def _shrunk(
    call: _Call, constants: dict[int, Values], masks: dict[int, Mask]
) -> tuple[Any, list[Any]]:
    """Returns a layer for what is left of a call, and its weights."""
    layer = call.layer
    if not isinstance(layer, keras.Layer):
        return layer, []  # an operation without weights
    if call.rule is None:
        return type(layer).from_config(layer.get_config()), layer.get_weights()
    return call.rule.shrunk(
        masks[id(call.inputs[0])],
        masks[id(call.outputs[0])],
        constants[id(call.inputs[0])],
    )

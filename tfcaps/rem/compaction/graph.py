"""The calls of a model, and the units of the tensors between them."""

from collections import Counter
from typing import Any, NamedTuple

import keras
import numpy as np

from tfcaps.graphs import calls_of
from tfcaps.rem.compaction.rules import rule_for
from tfcaps.rem.compaction.units import Mask, Rule, Shape, Values


class Call(NamedTuple):
    """A layer, the tensors it takes and gives, and its rule if it has one."""

    layer: Any
    inputs: list[Any]
    outputs: list[Any]
    rule: Rule | None


class Graph:
    """The calls of a functional model, in the order in which they happen.

    Args:
        model: The model.

    Attributes:
        calls: The calls.
        inputs: Tensors that the model takes.
        outputs: Tensors that it returns.
    """

    def __init__(self, model: keras.Model):
        copy, calls = calls_of(model)
        self.inputs, self.outputs = copy.inputs, copy.outputs
        times = Counter(id(call.layer) for call in calls)
        in_training = {id(call.layer) for call in calls if call.training}
        self.calls = []
        for layer, inputs, outputs, _ in calls:
            rule = None
            if times[id(layer)] == 1 and id(layer) not in in_training:
                rule = rule_for(layer, _shapes(inputs), _shapes(outputs))
            self.calls.append(Call(layer, inputs, outputs, rule))

    def constants(self) -> dict[int, Values]:
        """Returns the values of units that no image changes, NaN for others."""
        constants = {
            id(tensor): self._varying(tensor) for tensor in self.inputs
        }
        for call in self.calls:
            for tensor in (*call.inputs, *call.outputs):
                constants.setdefault(id(tensor), self._varying(tensor))
            if call.rule is None:
                continue
            known = call.rule.constants([constants[id(t)] for t in call.inputs])
            for tensor, values in zip(call.outputs, known, strict=False):
                if values is not None:
                    constants[id(tensor)] = values
        return constants

    def masks(self, constants: dict[int, Values]) -> dict[int, Mask]:
        """Returns masks of the units that something depends on, by tensor."""
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

    def _varying(self, tensor: Any) -> Values:
        return np.full(num_units(tensor), np.nan)

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
            stays = call.rule.always_kept([len(mask) for mask in given])
            _add(given, stays)
            values = [constants[id(tensor)] for tensor in call.inputs]
            _add(taken, call.rule.required_inputs(given, values))
            _add(given, call.rule.forced_outputs(taken, given))
        return bool(sum(mask.sum() for mask in masks.values()) > before)


def _shapes(tensors: list[Any]) -> list[Shape]:
    return [tuple(tensor.shape) for tensor in tensors]


def num_units(tensor: Any) -> int:
    """Returns the number of units of a tensor."""
    axes = len(tensor.shape)
    axis = {3: 1, 4: 3, 5: 3}.get(axes)
    return 0 if axis is None else int(tensor.shape[axis] or 0)


def _add(masks: list[Mask], more: list[Mask]) -> None:
    for mask, added in zip(masks, more, strict=False):
        mask |= added

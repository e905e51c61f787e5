"""Models without the parts that pruning has left without effect."""

from typing import Any

import keras

from tfcaps.graphs import (
    clone_with_call,
    functional,
    keep_pruned,
    of_same_kind,
    without_couplings,
)
from tfcaps.rem.compaction.graph import Call, Units
from tfcaps.rem.compaction.units import Mask, Values
from tfcaps.rem.finite import check_weights


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
      zero: what it adds to the next convolution goes into that one's bias;
    - a hidden capsule, or type of capsules, for which no child votes and that
      has no bias: it still competes, as one of the routing's `silent_parents`;
    - with EM routing, a type whose activation is 0, see `EMRouting.absent`.

    What a sum adds up leaves together. Outputs are the same but for rounding,
    since sums have fewer terms. Layers of kinds unknown here stay, and so does
    whatever feeds them; a `CompactCaps` of before is one of these.

    Args:
        model: A functional or sequential model. It is not changed.

    Returns:
        A `keras.Model` with the same name, inputs and outputs, and weights of
        its own. Couplings of hidden `ConvCaps` lose the removed types. Of a
        model that `add_couplings` made it is the network in it.

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


def _rebuilt(call: Call, keep: Mask, values: Values) -> tuple[Any, list[Any]]:
    """Returns a layer for what is left of a call, and its weights.

    Args:
        call: The call.
        keep: Which units are left.
        values: The constants.
    """
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

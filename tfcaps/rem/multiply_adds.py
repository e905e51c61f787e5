"""Counts the multiply-adds of a model from the shapes of its layers."""

import dataclasses
import math
from typing import Any

import keras

from tfcaps.graphs import (
    calls_of,
    check_unquantized,
    functional,
    without_couplings,
)
from tfcaps.layers.units import Shape
from tfcaps.rem.results import lines_of


class UnknownSizeError(ValueError):
    """A model takes images of any size, so that its products have no number."""


@dataclasses.dataclass(frozen=True)
class MultiplyAdds:
    """The multiply-adds of a model for one image.

    Attributes:
        per_layer: Those of each layer that has some, by its name.
        uncounted: Names of layers with weight matrices of a kind that is
            unknown here, which count as 0.
    """

    per_layer: dict[str, int]
    uncounted: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Those of all layers together."""
        return sum(self.per_layer.values())

    def __str__(self) -> str:
        rows = [*self.per_layer.items(), ("total", self.total)]
        table = lines_of((name, f"{count:>15,}") for name, count in rows)
        if self.uncounted:
            table.append(f"not counted: {', '.join(self.uncounted)}")
        return "\n".join(table)


def multiply_adds(model: keras.Model) -> MultiplyAdds:
    """Counts the multiply-adds that a model needs for one image.

    One multiply-add is a product and its addition to a sum, two floating-point
    operations. Counted are convolutions, dense layers, the votes of capsules,
    which are made once, and the passes of routing over all votes, see
    `tfcaps.routing.Routing.vote_passes`. What is done to each number alone
    (activations, biases, normalisation, squash, softmax) is not counted. Zeros
    of pruning count in full until `compact` has removed them.

    Args:
        model: A functional or sequential model. Inputs but the batch must have
            known sizes. A decoder counts; `classifier` leaves it out.

    Raises:
        ValueError: If a size is not known, or the model has no graph of layers.

    Example:

    >>> from tfcaps.models import dr_capsnet
    >>> multiply_adds(dr_capsnet((28, 28, 1), 10)).per_layer
    {'conv': 8294400, 'primary_caps': 191102976, 'class_caps': 2396160}
    """
    check_unquantized(model)
    per_layer: dict[str, int] = {}
    uncounted: list[str] = []
    _, calls = calls_of(functional(without_couplings(model)))
    for layer, inputs, *_ in calls:
        count = of_layer(layer, tuple(inputs[0].shape)) if inputs else 0
        if count is None:
            uncounted.append(layer.name)
        elif count:
            per_layer[layer.name] = per_layer.get(layer.name, 0) + count
    return MultiplyAdds(per_layer, tuple(dict.fromkeys(uncounted)))


def of_layer(layer: Any, shape: Shape) -> int | None:
    """Returns the multiply-adds of a layer on inputs of a shape.

    `None` if it has weight matrices and is of a kind unknown here.
    """
    inside = getattr(layer, "equivalent_layers", None)
    if inside is not None and not hasattr(layer, "multiply_adds"):
        return _sum_of((part, shape) for part in inside)
    if isinstance(layer, keras.Model):
        return multiply_adds(layer).total
    own = [getattr(layer, n, None) for n in ("inner_layers", "multiply_adds")]
    if not any(own) and not isinstance(layer, _OF_KERNELS):
        weights = getattr(layer, "weights", ())  # operations have none
        return None if any(len(w.shape) > 1 for w in weights) else 0
    if None in shape[1:]:
        raise UnknownSizeError(
            "Multiply-adds need inputs of a known size. Received: inputs "
            f"{tuple(shape)} of the layer {layer.name!r}. Build the model for "
            "images of one size."
        )
    shape = (1, *shape[1:])
    if not any(own):
        return _of_kernels(layer, shape)
    inner, more = own
    count = _sum_of(inner(shape)) if inner else 0
    return count if count is None or not more else count + int(more(shape))


def _sum_of(inner: Any) -> int | None:
    counts = [of_layer(layer, tuple(shape)) for layer, shape in inner]
    return None if None in counts else sum(count or 0 for count in counts)


def _of_kernels(layer: Any, shape: Any) -> int:
    """Counts layers whose weights are used anew at each position."""
    if not isinstance(layer, _OF_INPUTS):
        shape = layer.compute_output_shape(shape)
    is_last = getattr(layer, "data_format", "channels_last") == "channels_last"
    positions = math.prod(shape[1:-1] if is_last else shape[2:])
    kernels = [w for w in layer.weights if len(w.shape) > 1]
    return positions * sum(math.prod(kernel.shape) for kernel in kernels)


# Layers whose kernels are used at each position of the inputs, and all of them.
_OF_INPUTS, _OF_KERNELS = (
    tuple(getattr(keras.layers, name) for name in names.split())
    for names in (
        "Dense Conv1DTranspose Conv2DTranspose Conv3DTranspose",
        "Dense Conv1DTranspose Conv2DTranspose Conv3DTranspose "
        "Conv1D Conv2D Conv3D DepthwiseConv1D DepthwiseConv2D "
        "SeparableConv1D SeparableConv2D",
    )
)

"""Counts the multiply-adds of a model from the shapes of its layers."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import keras

from tfcaps.graphs import (
    calls_of,
    check_unquantized,
    functional,
    without_couplings,
)
from tfcaps.layers import (
    ClassCaps,
    ConvCaps,
    ConvCaps3D,
    Decoder,
    PrimaryCaps,
    PrimaryMatrixCaps,
)
from tfcaps.parts import PartCaps
from tfcaps.rem.parse.couplings import WithCouplings
from tfcaps.rem.results import lines_of

# Of one image: the batch comes first.
Shape = tuple[int | None, ...]
Sizes = tuple[int, ...]


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
    (activations, biases, normalisation, squash, softmax) is not counted.

    The count follows from shapes: zeros of pruning count in full until
    `compact` has removed them. The matrices of EM count as matrices, and votes
    as if they were held in memory, whichever way is taken to contract them.

    Args:
        model: A functional or sequential model. Inputs but the batch must have
            known sizes. A decoder counts; `encoder` leaves it out.

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
    if (inside := getattr(layer, "equivalent_layers", None)) is not None:
        counts = [of_layer(part, shape) for part in inside]
        return None if None in counts else sum(count or 0 for count in counts)
    count = next((c for kind, c in _COUNTS if isinstance(layer, kind)), None)
    if (told := getattr(layer, "multiply_adds", None)) is not None:
        count = _told_by(told)
    if count is None:
        weights = getattr(layer, "weights", ())  # operations have none
        return None if any(len(w.shape) > 1 for w in weights) else 0
    if None in shape[1:]:
        raise UnknownSizeError(
            "Multiply-adds need inputs of a known size. Received: inputs "
            f"{tuple(shape)} of the layer {layer.name!r}. Build the model for "
            "images of one size."
        )
    return count(layer, (1, *(size or 1 for size in shape[1:])))


def _kernels(layer: Any, shape: Sizes) -> int:
    """Counts layers whose weights are used anew at each position."""
    if not isinstance(layer, (keras.layers.Dense, *_TRANSPOSED)):
        shape = layer.compute_output_shape(shape)
    is_last = getattr(layer, "data_format", "channels_last") == "channels_last"
    positions = math.prod(shape[1:-1] if is_last else shape[2:])
    kernels = [w for w in layer.weights if len(w.shape) > 1]
    return positions * sum(math.prod(kernel.shape) for kernel in kernels)


def _primary(layer: Any, shape: Sizes) -> int:
    if len(shape) == 5:  # CapsuleConv2D: types and components are channels
        *grid, types, components = shape
        shape = (*grid, types * components)
    return _of_any(layer.conv, shape)


def _told_by(method: Any) -> "_Count":
    """Returns a function that asks a layer, which knows by itself."""
    return lambda _, shape: int(method(shape))


def _of_parts(*names: str) -> "_Count":
    """Returns a function that counts layers with kernels inside a layer."""
    return lambda layer, shape: sum(
        _kernels(getattr(layer, name), shape) for name in names
    )


def _routed(layer: Any, children: int, components: int) -> int:
    """Returns the products of the votes, and of the passes over them."""
    rows = math.isqrt(layer.dim) if layer.matrix else 1
    parents = layer._num_parents * layer.dim
    passes = layer.routing.vote_passes
    return children * parents * (components // rows + passes)


def _class_caps(layer: Any, shape: Sizes) -> int:
    return _routed(layer, math.prod(shape[1:-1]), shape[-1])


def _conv_caps(layer: Any, shape: Sizes) -> int:
    windows = math.prod(layer._windows(shape).shape)
    children = math.prod((*layer.kernel_size, shape[-2]))
    return windows * _routed(layer, children, shape[-1])


def _conv_caps_3d(layer: Any, shape: Sizes) -> int:
    batch, rows, columns, types, components = shape
    depth = (batch, rows, columns, layer.depth or components)
    votes = types * _kernels(layer.conv, depth)
    *grid, num_types, dim = layer.compute_output_shape(shape)
    parents = math.prod((*grid, num_types, dim))
    return votes + types * parents * layer.routing.vote_passes


def _decoder(layer: Any, shape: Sizes) -> int:
    _, classes, dim = shape
    inputs = dim if layer.class_independent else classes * dim
    return _of_any(layer.network, (1, inputs))


def _of_any(layer: Any, shape: Sizes) -> int:
    return of_layer(layer, shape) or 0


_Count = Callable[[Any, Sizes], int]
_TRANSPOSED, _OF_KERNELS = (
    tuple(getattr(keras.layers, name) for name in names.split())
    for names in (
        "Conv1DTranspose Conv2DTranspose Conv3DTranspose",
        "Dense Conv1D Conv2D Conv3D DepthwiseConv1D DepthwiseConv2D "
        "SeparableConv1D SeparableConv2D",
    )
)

# The first that fits; subclasses stand before their bases.
_COUNTS: tuple[tuple[Any, _Count], ...] = (
    (ClassCaps, _class_caps),
    (ConvCaps, _conv_caps),
    (ConvCaps3D, _conv_caps_3d),
    (PartCaps, _of_parts("conv", "nothing_conv")),
    (PrimaryCaps, _primary),
    (PrimaryMatrixCaps, _of_parts("pose_conv", "activation_conv")),
    (Decoder, _decoder),
    # Without what is asked beside its outputs.
    (WithCouplings, lambda layer, shape: _of_any(layer.layer, shape)),
    (keras.Model, lambda model, _: multiply_adds(model).total),
    ((*_OF_KERNELS, *_TRANSPOSED), _kernels),
)

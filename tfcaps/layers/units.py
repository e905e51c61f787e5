"""What layers say of themselves to `tfcaps.rem`, which asks by these names.

| member | asked by |
|---|---|
| `routing`, a `tfcaps.routing.Routing`, makes it a routed layer; or what \
`tfcaps.graphs.routing_of` lists, if it routes by itself | all |
| `children_shape(input_shape)` and `voting_activations(inputs, activations)`, \
of a layer each of whose parents has all children | `rem.trees` |
| `child_places(inputs)`, if poses say where children stand | `rem.trees` |
| `quantizable = False`, of couplings that are never rounded | `rem.evaluate` |
| `multiply_adds(input_shape)`, beside those of `inner_layers(input_shape)`: \
pairs of a layer inside and the shape of its input | `rem.multiply_adds` |
| `receptive_windows`: `(kernel_size, strides, padding)` one after the other, \
`None` for the whole map | `rem.receptive_fields` |
| `layer_units(input_shapes)`, see `LayerUnits`; not inherited, as a subclass \
may do anything | `rem.compact`, `rem.prune_structured` |
| `equivalent_layers`, layers that do the same | all |

Each can be left out. A layer of which nothing is known stays as it is, sees the
whole map, and is named as one that is not counted.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int | None, ...]
Ids = NDArray[np.integer]  # numbers of units
Mask = NDArray[np.bool_]


class Slice(NamedTuple):
    """The entries of a weight that belong to units."""

    variable: Any
    axis: int
    units: Ids  # number of the unit of each entry along the axis
    fill: float = 0.0  # where a unit was left out
    counts: bool = True  # whether a unit has an effect if others are here


class LayerUnits(NamedTuple):
    """The units of a layer's inputs and outputs, and the weights of each.

    Units are the channels of a map `[b, h, w, c]`, the types of a map of
    capsules `[b, h, w, t, k]` and the capsules `[b, i, k]`; other tensors have
    none. Of several inputs or outputs, such as poses and activations, each unit
    has its share of all.

    Attributes:
        made: The weights that make each unit of the outputs.
        read: The weights that read each unit of the inputs.
        settings: From a mask of the outputs' units that are left, what changes
            in the layer's config.
        sources: Of a layer that makes each unit of its output of few units of
            its inputs, with which it leaves: from an array for each input those
            arrays whose entries belong to the output's units.
        outputs: How many outputs there are, `None` if that does not matter. If
            there are others, all units stay.
        stay: Whether all units of the outputs stay.
        compete: Whether units of the outputs count though nothing reads them.
        value: What units of the outputs are in every image if `made` is as
            `fill` says; NaN if that is not known. With `sources` a function
            from such values of each input to those of the output; otherwise
            they are those of the first sources.
        active: The input and the output of which this holds: 1, activations, if
            poses have some of their own.
        folds: Kernels that read constant units of the inputs, and the biases to
            which these can be added instead, see `constants_of`.
    """

    made: Sequence[Slice] = ()
    read: Sequence[Slice] = ()
    settings: Callable[[Mask], dict[str, Any]] = lambda left: {}
    sources: Callable[[list[Any]], list[Any]] | None = None
    outputs: int | None = 1
    stay: bool = False
    compete: bool = False
    value: Any = 0.0
    active: tuple[int, int] = (0, 0)
    folds: Sequence[tuple[Any, Any]] = ()


def count_as(name: str) -> Callable[[Mask], dict[str, Any]]:
    """Returns `LayerUnits.settings` of a layer whose argument counts units."""
    return lambda left: {name: int(left.sum())}


def channels_of(
    conv: Any, unit: int, axis: int = 3, fill: float = 0.0
) -> list[Slice]:
    """Returns the weights of units of so many channels of a convolution."""
    units = np.arange(conv.kernel.shape[axis]) // unit
    slices = [Slice(conv.kernel, axis, units)]
    if conv.use_bias:
        slices.append(Slice(conv.bias, 0, units, fill))
    return slices


def channels_read(conv: Any, unit: int = 1) -> list[Slice]:
    """Returns the weights that read units of so many channels each."""
    kernel = conv.kernel
    return [Slice(kernel, 2, np.arange(kernel.shape[2]) // unit)]


def constants_of(*convs: Any) -> list[tuple[Any, Any]]:
    """Returns `LayerUnits.folds` of convolutions.

    Beyond the border a map is 0, and in half precision a bias would be rounded
    otherwise than the sum.
    """
    fits = all(
        conv.use_bias
        and conv.padding == "valid"
        and conv.compute_dtype == "float32"
        for conv in convs
    )
    return [(conv.kernel, conv.bias) for conv in convs] if fits else []

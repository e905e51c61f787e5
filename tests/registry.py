"""Every public layer, routing and loss, one entry each, for the contract."""

import dataclasses
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest

from tfcaps.layers import ClassCaps, Length, PrimaryCaps
from tfcaps.losses import MarginLoss
from tfcaps.routing import DynamicRouting


@dataclasses.dataclass(frozen=True)
class Case:
    """A way to construct a public class; `make` takes further arguments."""

    name: str
    make: partial

    @property
    def public_class(self):
        return self.make.func


@dataclasses.dataclass(frozen=True)
class LayerCase(Case):
    """A layer, the shapes it takes (nested, without batch) and its size."""

    inputs: Any
    num_parameters: int
    call: dict[str, Any] = dataclasses.field(default_factory=dict)

    def symbolic_inputs(self):
        return _map_shapes(keras.Input, self.inputs)

    def random_inputs(self, rng, batch):
        def normal(shape):
            return rng.normal(size=(batch, *shape)).astype("float32")

        return _map_shapes(normal, self.inputs)

    def model(self, **kwargs):
        inputs = self.symbolic_inputs()
        outputs = self.make(**kwargs)(inputs, **self.call)
        return keras.Model(inputs, outputs)


def _map_shapes(function, shapes):
    if isinstance(shapes, list):
        return [function(shape) for shape in shapes]
    return function(shapes)


@dataclasses.dataclass(frozen=True)
class RoutingCase(Case):
    """A routing; `dim` is the size of the poses it is tried with."""

    dim: int = 4

    def random_arguments(self, rng, batch=2, children=6, parents=3):
        """Returns votes, child activations and a bias."""
        shapes = (batch, children, parents, self.dim), (parents, self.dim)
        votes, bias = (rng.normal(size=shape) for shape in shapes)
        activations = rng.uniform(0.1, 0.9, size=(batch, children))
        return [
            np.asarray(array, "float32") for array in (votes, activations, bias)
        ]


LAYERS = [
    LayerCase(
        "class_caps", partial(ClassCaps, 3, 4), (5, 6), 5 * 3 * 6 * 4 + 3 * 4
    ),
    LayerCase(
        "class_caps-couplings",
        partial(ClassCaps, 3, 4),
        (2, 2, 3, 4),
        12 * 3 * 4 * 4 + 3 * 4,
        call={"return_couplings": True},
    ),
    LayerCase(
        "class_caps-full_gradient",
        partial(ClassCaps, 3, 4, routing=DynamicRouting(2, gradient="full")),
        (5, 6),
        5 * 3 * 6 * 4 + 3 * 4,
    ),
    LayerCase(
        "class_caps-no_bias",
        partial(ClassCaps, 3, 4, routing=1, use_bias=False),
        (5, 6),
        5 * 3 * 6 * 4,
    ),
    LayerCase(
        "class_caps-share_type",
        partial(ClassCaps, 3, 4, share="type"),
        (2, 2, 3, 4),
        3 * 3 * 4 * 4 + 3 * 4,
    ),
    LayerCase(
        "class_caps-share_all",
        partial(ClassCaps, 3, 4, share="all"),
        (5, 6),
        3 * 6 * 4 + 3 * 4,
    ),
    LayerCase("length", partial(Length), (3, 4), 0),
    LayerCase(
        "primary_caps",
        partial(PrimaryCaps, 2, 4, kernel_size=3),
        (5, 5, 3),
        3 * 3 * 3 * 8 + 8,
    ),
    LayerCase(
        "primary_caps-same",
        partial(
            PrimaryCaps, 2, 4, (3, 1), strides=2, padding="same", use_bias=False
        ),
        (5, 4, 3),
        3 * 1 * 3 * 8,
    ),
]

ROUTINGS = [
    RoutingCase("dynamic", partial(DynamicRouting)),
    RoutingCase("dynamic-full", partial(DynamicRouting, gradient="full")),
    RoutingCase("dynamic-levels", partial(DynamicRouting, levels=5)),
]

LOSSES = [
    Case("margin", partial(MarginLoss)),
    Case(
        "margin-custom",
        partial(MarginLoss, 0.8, 0.2, 0.3, reduction="sum", name="custom"),
    ),
]


def parametrize(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)

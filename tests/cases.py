"""What a row of the registry is."""

import dataclasses
import itertools
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest

from tests.nightly import NIGHTLY, nightly


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
    """A layer, the shapes it takes (without batch) and its size.

    A list of two shapes is that of poses and of activations.
    """

    inputs: Any
    num_parameters: int
    call: dict[str, Any] = dataclasses.field(default_factory=dict)

    def apply(self, layer, inputs):
        """Calls the layer as the row says."""
        if isinstance(inputs, list):
            poses, activations = inputs
            return layer(poses, activations=activations, **self.call)
        return layer(inputs, **self.call)

    def symbolic_inputs(self):
        if isinstance(self.inputs, list):
            return [keras.Input(shape) for shape in self.inputs]
        return keras.Input(self.inputs)

    def random_inputs(self, rng, batch):
        if not isinstance(self.inputs, list):
            return rng.normal(size=(batch, *self.inputs)).astype("float32")
        poses, activations = ((batch, *shape) for shape in self.inputs)
        return [
            rng.normal(size=poses).astype("float32"),
            rng.uniform(0.1, 0.9, size=activations).astype("float32"),
        ]

    def model(self, **kwargs):
        inputs = self.symbolic_inputs()
        return keras.Model(inputs, self.apply(self.make(**kwargs), inputs))


@dataclasses.dataclass(frozen=True)
class RoutingCase(Case):
    """A routing; `dim` is the size of the poses it is tried with.

    `shares` tells whether a child's unrounded couplings sum to one.
    """

    dim: int = 4
    shares: bool = True

    def random_arguments(self, rng, batch=2, children=6, parents=3):
        """Returns votes, child activations and the weights by their names."""

        def normal(*shape):
            return rng.normal(size=shape).astype("float32")

        votes = normal(batch, children, parents, self.dim)
        declared = self.make().weights(children, parents, self.dim)
        weights = {name: normal(*w.shape) for name, w in declared.items()}
        if "slots" in weights:  # shares of what a parent has
            weights["slots"] = 1.0 / (1.0 + np.exp(-weights["slots"]))
            # Narrow, so that no two places have the same votes near.
            weights["log_width"] = weights["log_width"] - 2.0
        activations = rng.uniform(0.1, 0.9, size=(batch, children))
        return votes, activations.astype("float32"), weights


@dataclasses.dataclass(frozen=True)
class LossCase(Case):
    """A loss, of class lengths unless it is one of images or of routing.

    Those of routing take three axes. `perfect` tells whether a right answer
    costs nothing.
    """

    of_classes: bool = True
    of_routing: bool = False
    perfect: bool = True


def parametrize(cases, slow=(), late=()):
    """One test for each case; those whose names begin so are slow, or nightly.

    JAX compiles every operation of every shape. There the plain form of each
    class is enough, and EM's of matrices, unless `NIGHTLY=1`.
    """
    if keras.backend.backend() != "tensorflow" and not NIGHTLY:
        plain = ("-" not in case.name or "em" in case.name for case in cases)
        cases = list(itertools.compress(cases, plain)) or cases
    marked = [
        pytest.param(
            case,
            id=case.name,
            marks=[
                mark
                for mark, names in ((pytest.mark.slow, slow), (nightly, late))
                if case.name.startswith(tuple(names))
            ],
        )
        for case in cases
    ]
    return pytest.mark.parametrize("case", marked)

"""Every public layer, routing and loss, one row each, for the contract.

A layer has a row for every setting that changes what it computes.
"""

import dataclasses
import itertools
from functools import partial
from typing import Any

import keras
import pytest

from tests.nightly import NIGHTLY, nightly
from tfcaps import layers, losses, parts, routing


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
    """A layer, and the shapes it takes, without batch.

    A list of two shapes is that of poses and of activations.
    """

    inputs: Any
    call: dict[str, Any]

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
    """A routing."""

    def random_arguments(self, rng, batch=2, children=6, parents=3, dim=4):
        """Returns votes, child activations and the weights by their names."""

        def normal(*shape):
            return rng.normal(size=shape).astype("float32")

        votes = normal(batch, children, parents, dim)
        declared = self.make().weights(children, parents, dim)
        weights = {name: normal(*w.shape) for name, w in declared.items()}
        activations = rng.uniform(0.1, 0.9, size=(batch, children))
        return votes, activations.astype("float32"), weights


@dataclasses.dataclass(frozen=True)
class LossCase(Case):
    """A loss, of class lengths unless it is one of images or of routing.

    Those of routing take three axes.
    """

    of: str


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


ALL = {"return_activations": True, "return_couplings": True}
_NAMES = {
    **vars(layers),
    **vars(losses),
    **vars(parts),
    **vars(routing),
    "partial": partial,
    "ALL": ALL,
    "COUPLINGS": {"return_couplings": True},
    "CHILDREN": (5, 6),
    "GRID": (2, 2, 3, 4),
    # A map of capsules that windows of 2x2 and 3x2 fit into.
    "MAP": (4, 3, 2, 4),
    "PARTS": [(3, 4, 2, 2), (3, 4, 2)],
    "OWN": keras.saving.serialize_keras_object(
        keras.Sequential([keras.layers.Dense(30)])
    ),
}


def _cases(kind, table):
    """Makes a case of each line: its name, what it takes, and the object.

    Lines go on where they are indented.
    """
    cases = []
    for line in table.strip().replace("\n ", " ").splitlines():
        name, *more, call = line.split(" | ")
        make = eval(f"partial({call.replace('(', ', ', 1)}", _NAMES)
        rest = (eval(value, _NAMES) for value in more)
        cases.append(kind(name.strip(), make, *rest))
    return cases


# Names, shapes, arguments of the call, and layers.
LAYERS = _cases(
    LayerCase,
    """
class_caps | CHILDREN | {} | ClassCaps(3, 4)
class_caps-couplings | GRID | COUPLINGS | ClassCaps(3, 4)
class_caps-no_bias | CHILDREN | {} | ClassCaps(3, 4, 1, use_bias=False)
class_caps-share_type | GRID | {} | ClassCaps(3, 4, share="type")
class_caps-share_all | CHILDREN | ALL | ClassCaps(3, 4, share="all")
class_caps-regularized | CHILDREN | {} | ClassCaps(3, 4, "regularized")
class_caps-scaled_distance | CHILDREN | {} | ClassCaps(3, 4, "scaled_distance")
class_caps-self_attention | CHILDREN | {} | ClassCaps(3, 4, "self_attention")
class_caps-matrix | GRID | {} | ClassCaps(3, 4, matrix=True)
class_caps-matrix_em | [(2, 3, 2, 16), (2, 3, 2)] | ALL
    | ClassCaps(3, 16, EMRouting(2), matrix=True, coordinates=True,
      share="type")
conv_caps | MAP | {} | ConvCaps(3, 5, 2)
conv_caps-same | MAP | COUPLINGS | ConvCaps(3, 5, (3, 2), (2, 1), "same")
conv_caps-self_attention | MAP | {}
    | ConvCaps(3, 5, 2, routing="self_attention")
conv_caps-matrix_em | [(4, 4, 2, 4), (4, 4, 2)] | ALL
    | ConvCaps(3, 4, 3, 2, "same", EMRouting(2, 0.1), matrix=True)
conv_caps_3d | MAP | {} | ConvCaps3D(3, 5)
conv_caps_3d-map | MAP | COUPLINGS | ConvCaps3D(3, 5, squash="map")
conv_caps_3d-votes_bias | MAP | {} | ConvCaps3D(3, 5, bias="votes", depth=3)
conv_caps_3d-no_bias | MAP | {}
    | ConvCaps3D(3, 5, "uniform", bias=None)
capsule_conv | MAP | {} | CapsuleConv2D(3, 5)
capsule_conv-strides | MAP | {}
    | CapsuleConv2D(3, 5, (2, 3), 2, "valid", use_bias=True,
      squash="efficient")
constellation_caps | PARTS | ALL
    | ConstellationCaps(3)
constellation_caps-evidence | PARTS | {"return_evidence": True}
    | ConstellationCaps(3, width=1.0, levels=11, stride=2, offset=(1, 0))
constellation_caps-own_types | PARTS | ALL | ConstellationCaps(3, shared=False)
constellation_caps-few | PARTS | ALL
    | ConstellationCaps(3, max_of_type=2, max_parts=3)
map_caps | PARTS | ALL | MapCaps(3)
map_caps-evidence | PARTS | {"return_evidence": True}
    | MapCaps(3, 0.5, width=1.0, levels=11, stride=2, offset=(1, 0))
part_caps | (5, 4, 3) | {} | PartCaps(2, 3)
part_caps-presence | (5, 4, 3) | {"return_presence": True}
    | PartCaps(2, stride=2, offset=(1, 1))
strongest_parts | (5, 4, 3) | {} | StrongestParts(2)
template_decoder | (3, 2, 3) | {} | TemplateDecoder((5, 4, 2), 3, (1, 0))
length | (3, 4) | {} | Length()
squash | (3, 4) | {} | Squash()
squash-efficient | GRID | {} | Squash("efficient")
primary_caps | (5, 5, 3) | {} | PrimaryCaps(2, 4, kernel_size=3)
primary_caps-same | (5, 4, 3) | {}
    | PrimaryCaps(2, 4, (3, 1), strides=2, padding="same", use_bias=False)
primary_caps-depthwise | (5, 5, 8) | {}
    | PrimaryCaps(2, 4, 3, depthwise=True, squash="efficient")
primary_matrix_caps | (3, 4, 5) | {} | PrimaryMatrixCaps(2)
decoder | (3, 4) | {} | Decoder((5, 3, 2))
decoder-class_independent | [(3, 4), (3,)] | {}
    | Decoder((5, 3, 2), class_independent=True)
decoder-deconvolution | (3, 4) | {} | Decoder((8, 8, 1), "deconvolution")
decoder-upsampling | (3, 4) | {} | Decoder((24, 24, 1), "upsampling")
decoder-own_network | (3, 4) | {} | Decoder((5, 3, 2), OWN)
""",
)

ROUTINGS = _cases(
    RoutingCase,
    """
dynamic | DynamicRouting()
dynamic-full | DynamicRouting(gradient="full")
dynamic-levels | DynamicRouting(levels=5)
dynamic-midrise | DynamicRouting(levels=4, mode="midrise")
dynamic-leaky | DynamicRouting(leaky=True)
dynamic-sharp | DynamicRouting(sharpness=2.0)
dynamic-abstaining | DynamicRouting(leaky=True, sharpness=2.0, orphan=0.1)
dynamic-silent | DynamicRouting(silent_parents=2)
em | EMRouting()
em-code | EMRouting(variant="code")
em-levels | EMRouting(inverse_temperature=0.1, epsilon=1e-6, gradient="last",
    levels=11, mode="midrise")
regularized | RegularizedRouting()
regularized-l1 | RegularizedRouting("l1", 0.1, 0.01, levels=5)
scaled_distance | ScaledDistanceRouting()
scaled_distance-sample
    | ScaledDistanceRouting(distance_scale="sample", gradient="full")
scaled_distance-levels | ScaledDistanceRouting(levels=5)
self_attention | SelfAttentionRouting()
self_attention-sharp | SelfAttentionRouting(sharpness=5.0)
self_attention-levels | SelfAttentionRouting(gradient="last", levels=5)
uniform | UniformRouting()
uniform-levels | UniformRouting(levels=5)
""",
)

# Names, of what they are, and losses.
LOSSES = _cases(
    LossCase,
    """
margin | "classes" | MarginLoss()
margin-custom | "classes"
    | MarginLoss(0.8, 0.2, 0.3, reduction="sum", name="custom")
spread | "classes" | SpreadLoss()
spread-custom | "classes" | SpreadLoss(0.7, reduction="sum", name="custom")
evidence | "classes" | EvidenceLoss()
evidence-custom | "classes" | EvidenceLoss(0.0, reduction="sum", name="custom")
cells | "routing" | CellLoss()
coupling | "routing" | CouplingLoss()
coupling-custom | "routing"
    | CouplingLoss(0.5, 0.7, 3.0, share=0.2, places=4, name="custom")
counterfactual | "routing" | CounterfactualLoss()
counterfactual-custom | "routing"
    | CounterfactualLoss(2.0, 0.5, margin=0.3, name="custom")
presence | "routing" | PresenceLoss()
reconstruction | "images" | ReconstructionLoss()
reconstruction-custom | "images"
    | ReconstructionLoss(0.1, reduction="sum", name="custom")
""",
)

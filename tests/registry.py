"""Every public layer, routing and loss, one row each, for the contract.

A layer has a row for every setting that changes what it computes.
"""

import dataclasses
import itertools
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest

from tests.nightly import NIGHTLY, nightly
from tfcaps.layers import (
    CapsuleConv2D,
    ClassCaps,
    CompactCaps,
    ConstellationCaps,
    ConvCaps,
    ConvCaps3D,
    Decoder,
    Length,
    PartCaps,
    PrimaryCaps,
    PrimaryMatrixCaps,
    Squash,
    TemplateDecoder,
)
from tfcaps.losses import (
    CounterfactualLoss,
    CouplingLoss,
    EvidenceLoss,
    MarginLoss,
    PresenceLoss,
    ReconstructionLoss,
    SpreadLoss,
)
from tfcaps.routing import (
    DynamicRouting,
    EMRouting,
    MeanShiftRouting,
    RegularizedRouting,
    ScaledDistanceRouting,
    SelfAttentionRouting,
    UniformRouting,
)


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
    """A routing."""

    def random_arguments(self, rng, batch=2, children=6, parents=3, dim=4):
        """Returns votes, child activations and the weights by their names."""

        def normal(*shape):
            return rng.normal(size=shape).astype("float32")

        votes = normal(batch, children, parents, dim)
        declared = self.make().weights(children, parents, dim)
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

    Those of routing take three axes.
    """

    of: str = "classes"


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


CHILDREN = (5, 6)
GRID = (2, 2, 3, 4)
MATRICES = [(2, 3, 2, 16), (2, 3, 2)]
# A map of capsules that windows of 2x2 and 3x2 fit into.
MAP = (4, 3, 2, 4)
MAP_OF_MATRICES = [(4, 4, 2, 4), (4, 4, 2)]
ALL = {"return_activations": True, "return_couplings": True}

CLASS_CAPS = 5 * 3 * 6 * 4
CONV_CAPS = 2 * 2 * 2 * 3 * 4 * 5
# A decoder's second and third layer, for images of 30 values.
DENSE = 512 * 1024 + 1024 + 1024 * 30 + 30


def _class_caps(name, size, *, inputs=CHILDREN, call=None, **settings):
    make = partial(ClassCaps, 3, settings.pop("dim", 4), **settings)
    return LayerCase(f"class_caps{name}", make, inputs, size, call or {})


def _compact_caps(name, size, *, inputs=CHILDREN, call=None, **settings):
    """Two of the children, or types, vote."""
    voting = {"grid": (9,), "sources": [3, 0], "origins": [1, 7], **settings}
    make = partial(CompactCaps, 3, 4, **voting)
    return LayerCase(f"compact_caps{name}", make, inputs, size, call or {})


def _conv_caps(name, size, window=2, *, inputs=MAP, call=None, **settings):
    make = partial(ConvCaps, 3, settings.pop("dim", 5), window, **settings)
    return LayerCase(f"conv_caps{name}", make, inputs, size, call or {})


def _conv_caps_3d(name, size, call=None, **settings):
    make = partial(ConvCaps3D, 3, 5, **settings)
    return LayerCase(f"conv_caps_3d{name}", make, MAP, size, call or {})


def _decoder(name, size, *arguments, inputs=(3, 4), **settings):
    make = partial(Decoder, *arguments, **settings)
    return LayerCase(f"decoder{name}", make, inputs, size)


LAYERS = [
    _class_caps("", CLASS_CAPS + 12),
    _class_caps(
        "-couplings",
        12 * 3 * 4 * 4 + 12,
        inputs=GRID,
        call={"return_couplings": True},
    ),
    _class_caps("-no_bias", CLASS_CAPS, routing=1, use_bias=False),
    _class_caps("-share_type", 3 * 3 * 4 * 4 + 12, inputs=GRID, share="type"),
    _class_caps("-share_all", 3 * 6 * 4 + 12, share="all", call=ALL),
    _class_caps("-regularized", CLASS_CAPS + 12 + 5 * 3, routing="regularized"),
    _class_caps("-scaled_distance", CLASS_CAPS + 12, routing="scaled_distance"),
    _class_caps(
        "-self_attention", CLASS_CAPS + 5 * 3, routing="self_attention"
    ),
    _class_caps("-matrix", 12 * 3 * 2 * 2 + 12, inputs=GRID, matrix=True),
    _class_caps(
        "-matrix_em",
        2 * 3 * 4 * 4 + 6,
        inputs=MATRICES,
        call=ALL,
        dim=16,
        routing=EMRouting(2),
        matrix=True,
        coordinates=True,
        share="type",
    ),
    _compact_caps("", 2 * 3 * 6 * 4 + 12),
    _compact_caps(
        "-grid",
        2 * 3 * 4 * 4 + 12,
        inputs=GRID,
        call={"return_couplings": True},
        grid=(2, 2, 4),
        sources=[4, 9],
        origins=[5, 13],
    ),
    _compact_caps(
        "-share_type",
        2 * 3 * 4 * 4 + 12,
        inputs=GRID,
        call=ALL,
        grid=(2, 2, 5),
        sources=[0, 2],
        origins=[1, 4],
        share="type",
    ),
    _compact_caps(
        "-self_attention",
        2 * 3 * 4 * 4 + 8 * 3,
        inputs=GRID,
        call=ALL,
        grid=(2, 2, 3),
        sources=[0, 2],
        origins=[0, 2],
        share="type",
        routing="self_attention",
    ),
    _conv_caps("", CONV_CAPS + 15),
    _conv_caps(
        "-same",
        3 * 2 * 2 * 3 * 4 * 5 + 15,
        (3, 2),
        strides=(2, 1),
        padding="same",
        call={"return_couplings": True},
    ),
    _conv_caps(
        "-share_types", CONV_CAPS // 2, share_types=True, use_bias=False
    ),
    _conv_caps("-self_attention", CONV_CAPS + 8 * 3, routing="self_attention"),
    _conv_caps(
        "-matrix_em",
        9 * 2 * 3 * 2 * 2 + 6,
        3,
        inputs=MAP_OF_MATRICES,
        call=ALL,
        dim=4,
        strides=2,
        padding="same",
        routing=EMRouting(2, inverse_temperature=0.1),
        matrix=True,
    ),
    _conv_caps_3d("", 9 * 4 * 15 + 15),
    _conv_caps_3d(
        "-map", 9 * 4 * 15 + 15, {"return_couplings": True}, squash="map"
    ),
    _conv_caps_3d("-votes_bias", 9 * 3 * 15 + 15, bias="votes", depth=3),
    _conv_caps_3d(
        "-no_bias",
        6 * 4 * 15,
        kernel_size=(3, 2),
        padding="valid",
        routing="uniform",
        bias=None,
    ),
    LayerCase("capsule_conv", partial(CapsuleConv2D, 3, 5), MAP, 9 * 8 * 15),
    LayerCase(
        "capsule_conv-strides",
        partial(
            CapsuleConv2D,
            3,
            5,
            (2, 3),
            2,
            "valid",
            use_bias=True,
            squash="efficient",
        ),
        MAP,
        6 * 8 * 15 + 15,
    ),
    LayerCase(
        "constellation_caps",
        partial(ConstellationCaps, 3, stride=1, repulsion=0.1),
        [(3, 4, 2, 2), (3, 4, 2)],
        2 * 3 * 2 + 1 + 2 * 3,
        ALL,
    ),
    LayerCase(
        "constellation_caps-evidence",
        partial(
            ConstellationCaps,
            3,
            MeanShiftRouting(steps=1, width=1.0, levels=11),
            stride=2,
            offset=(1, 0),
        ),
        [(3, 4, 2, 2), (3, 4, 2)],
        2 * 3 * 2 + 1 + 2 * 3,
        {"return_evidence": True},
    ),
    LayerCase("part_caps", partial(PartCaps, 2, 3), (5, 4, 3), 3 * 3 + 3 + 1),
    LayerCase(
        "part_caps-presence",
        partial(PartCaps, 2, stride=2, offset=(1, 1), power=2),
        (5, 4, 3),
        3 * 3 + 3 + 1,
        {"return_presence": True},
    ),
    LayerCase(
        "template_decoder",
        partial(TemplateDecoder, (5, 4, 2), 3, (1, 0)),
        (3, 2, 3),
        3 * 3 * 2 * 3 + 2,
    ),
    LayerCase("length", partial(Length), (3, 4), 0),
    LayerCase("squash", partial(Squash), (3, 4), 0),
    LayerCase("squash-efficient", partial(Squash, "efficient"), GRID, 0),
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
    LayerCase(
        "primary_caps-depthwise",
        partial(PrimaryCaps, 2, 4, 3, depthwise=True, squash="efficient"),
        (5, 5, 8),
        3 * 3 * 8 + 8,
    ),
    LayerCase(
        "primary_matrix_caps",
        partial(PrimaryMatrixCaps, 2),
        (3, 4, 5),
        5 * 32 + 32 + 5 * 2 + 2,
    ),
    LayerCase(
        "primary_matrix_caps-strides",
        partial(PrimaryMatrixCaps, 2, 4, 3, 2, "same"),
        (5, 4, 3),
        27 * 8 + 8 + 27 * 2 + 2,
    ),
    _decoder("", 12 * 512 + 512 + DENSE, (5, 3, 2)),
    _decoder(
        "-class_independent",
        4 * 512 + 512 + DENSE,
        (5, 3, 2),
        class_independent=True,
        inputs=[(3, 4), (3,)],
    ),
    _decoder(
        "-deconvolution",
        12 * 64 + 64 + 4 * 16 + 9280 + 18464 + 4624 + 145,
        (8, 8, 1),
        "deconvolution",
    ),
    _decoder(
        "-upsampling",
        12 * 25 + 25 + 640 + 73856 + 147584 + 1153,
        (24, 24, 1),
        "upsampling",
    ),
    _decoder(
        "-own_network",
        12 * 30 + 30,
        (5, 3, 2),
        keras.saving.serialize_keras_object(
            keras.Sequential([keras.layers.Dense(30)])
        ),
    ),
]


def _routing(name, routing, /, *arguments, **settings):
    return RoutingCase(name, partial(routing, *arguments, **settings))


ROUTINGS = [
    _routing("dynamic", DynamicRouting),
    _routing("dynamic-full", DynamicRouting, gradient="full"),
    _routing("dynamic-levels", DynamicRouting, levels=5),
    _routing(
        "dynamic-midrise", DynamicRouting, levels=4, levels_mode="midrise"
    ),
    _routing("dynamic-leaky", DynamicRouting, leaky=True),
    _routing("dynamic-sharp", DynamicRouting, sharpness=2.0),
    _routing(
        "dynamic-abstaining",
        DynamicRouting,
        leaky=True,
        sharpness=2.0,
        orphan=0.1,
    ),
    _routing("dynamic-silent", DynamicRouting, silent_parents=2),
    _routing("em", EMRouting),
    _routing("em-code", EMRouting, variant="code"),
    _routing(
        "em-levels",
        EMRouting,
        inverse_temperature=0.1,
        epsilon=1e-6,
        gradient="last",
        levels=11,
        levels_mode="midrise",
    ),
    _routing("mean_shift", MeanShiftRouting),
    _routing(
        "mean_shift-types",
        MeanShiftRouting,
        types=2,
        steps=2,
        width=1.0,
        levels=11,
    ),
    _routing("regularized", RegularizedRouting),
    _routing(
        "regularized-l1",
        RegularizedRouting,
        "l1",
        0.1,
        0.01,
        levels=5,
    ),
    _routing("scaled_distance", ScaledDistanceRouting),
    _routing(
        "scaled_distance-sample",
        ScaledDistanceRouting,
        distance_scale="sample",
        gradient="full",
    ),
    _routing("scaled_distance-levels", ScaledDistanceRouting, levels=5),
    _routing("self_attention", SelfAttentionRouting),
    _routing("self_attention-sharp", SelfAttentionRouting, sharpness=5.0),
    _routing(
        "self_attention-levels", SelfAttentionRouting, gradient="last", levels=5
    ),
    _routing("uniform", UniformRouting),
    _routing("uniform-levels", UniformRouting, levels=5),
]

CUSTOM = {"reduction": "sum", "name": "custom"}

LOSSES = [
    LossCase("margin", partial(MarginLoss)),
    LossCase("margin-custom", partial(MarginLoss, 0.8, 0.2, 0.3, **CUSTOM)),
    LossCase("spread", partial(SpreadLoss)),
    LossCase("spread-custom", partial(SpreadLoss, 0.7, **CUSTOM)),
    LossCase("evidence", partial(EvidenceLoss)),
    LossCase("evidence-custom", partial(EvidenceLoss, 0.0, **CUSTOM)),
    LossCase("coupling", partial(CouplingLoss), "routing"),
    LossCase(
        "coupling-custom",
        partial(
            CouplingLoss, 0.5, 0.7, 3.0, share=0.2, places=4, name="custom"
        ),
        "routing",
    ),
    LossCase("counterfactual", partial(CounterfactualLoss), "routing"),
    LossCase(
        "counterfactual-custom",
        partial(
            CounterfactualLoss, 2.0, 0.5, m_plus=0.8, margin=0.3, name="custom"
        ),
        "routing",
    ),
    LossCase("presence", partial(PresenceLoss), "routing"),
    LossCase("reconstruction", partial(ReconstructionLoss), "images"),
    LossCase(
        "reconstruction-custom",
        partial(ReconstructionLoss, 0.1, **CUSTOM),
        "images",
    ),
]

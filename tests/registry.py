"""Every public layer, routing and loss, one entry each, for the contract."""

from functools import partial

from tests.cases import LossCase, RoutingCase, parametrize
from tests.layer_cases import LAYERS
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

__all__ = ["LAYERS", "LOSSES", "ROUTINGS", "parametrize"]

MIDRISE = "midrise"


def _routing(name, routing, /, *arguments, shares=True, **settings):
    return RoutingCase(
        name, partial(routing, *arguments, **settings), shares=shares
    )


def _of_classes(name, loss, /, *arguments, perfect=True, **settings):
    return LossCase(
        name, partial(loss, *arguments, **settings), perfect=perfect
    )


def _of_routing(name, loss, /, *arguments, **settings):
    make = partial(loss, *arguments, **settings)
    return LossCase(name, make, of_classes=False, of_routing=True)


def _of_images(name, /, *arguments, **settings):
    make = partial(ReconstructionLoss, *arguments, **settings)
    return LossCase(name, make, of_classes=False)


ROUTINGS = [
    _routing("dynamic", DynamicRouting),
    _routing("dynamic-full", DynamicRouting, gradient="full"),
    _routing("dynamic-levels", DynamicRouting, levels=5),
    _routing("dynamic-midrise", DynamicRouting, levels=4, levels_mode=MIDRISE),
    _routing("dynamic-leaky", DynamicRouting, leaky=True, shares=False),
    _routing("dynamic-sharp", DynamicRouting, sharpness=2.0),
    _routing(
        "dynamic-abstaining",
        DynamicRouting,
        leaky=True,
        sharpness=2.0,
        orphan=0.1,
        shares=False,
    ),
    _routing("dynamic-silent", DynamicRouting, silent_parents=2, shares=False),
    _routing("em", EMRouting),
    _routing("em-code", EMRouting, variant="code"),
    _routing(
        "em-levels",
        EMRouting,
        inverse_temperature=0.1,
        epsilon=1e-6,
        gradient="last",
        levels=11,
        levels_mode=MIDRISE,
    ),
    _routing("mean_shift", MeanShiftRouting, shares=False),
    _routing(
        "mean_shift-types",
        MeanShiftRouting,
        types=2,
        steps=2,
        width=1.0,
        levels=11,
        shares=False,
    ),
    _routing("regularized", RegularizedRouting, shares=False),
    _routing(
        "regularized-l1",
        RegularizedRouting,
        "l1",
        0.1,
        0.01,
        shares=False,
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
    _of_classes("margin", MarginLoss),
    _of_classes("margin-custom", MarginLoss, 0.8, 0.2, 0.3, **CUSTOM),
    _of_classes("spread", SpreadLoss),
    _of_classes("spread-custom", SpreadLoss, 0.7, **CUSTOM),
    _of_classes("evidence", EvidenceLoss, perfect=False),
    _of_classes("evidence-custom", EvidenceLoss, 0.0, perfect=False, **CUSTOM),
    _of_routing("coupling", CouplingLoss),
    _of_routing(
        "coupling-custom",
        CouplingLoss,
        0.5,
        0.7,
        3.0,
        share=0.2,
        places=4,
        name="custom",
    ),
    _of_routing("counterfactual", CounterfactualLoss),
    _of_routing(
        "counterfactual-custom",
        CounterfactualLoss,
        2.0,
        0.5,
        m_plus=0.8,
        margin=0.3,
        name="custom",
    ),
    _of_routing("presence", PresenceLoss),
    _of_images("reconstruction"),
    _of_images("reconstruction-custom", 0.1, **CUSTOM),
]

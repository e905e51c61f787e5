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

ROUTINGS = [
    RoutingCase("dynamic", partial(DynamicRouting)),
    RoutingCase("dynamic-full", partial(DynamicRouting, gradient="full")),
    RoutingCase("dynamic-levels", partial(DynamicRouting, levels=5)),
    RoutingCase(
        "dynamic-midrise",
        partial(DynamicRouting, levels=4, levels_mode="midrise"),
    ),
    RoutingCase(
        "dynamic-leaky", partial(DynamicRouting, leaky=True), shares=False
    ),
    RoutingCase("dynamic-sharp", partial(DynamicRouting, sharpness=2.0)),
    RoutingCase(
        "dynamic-abstaining",
        partial(DynamicRouting, leaky=True, sharpness=2.0, orphan=0.1),
        shares=False,
    ),
    RoutingCase(
        "dynamic-silent",
        partial(DynamicRouting, silent_parents=2),
        shares=False,
    ),
    RoutingCase("em", partial(EMRouting)),
    RoutingCase("em-code", partial(EMRouting, variant="code")),
    RoutingCase(
        "em-levels",
        partial(
            EMRouting,
            inverse_temperature=0.1,
            epsilon=1e-6,
            gradient="last",
            levels=11,
            levels_mode="midrise",
        ),
    ),
    RoutingCase("mean_shift", partial(MeanShiftRouting), shares=False),
    RoutingCase(
        "mean_shift-types",
        partial(MeanShiftRouting, types=2, steps=2, width=1.0, levels=11),
        shares=False,
    ),
    RoutingCase("regularized", partial(RegularizedRouting), shares=False),
    RoutingCase(
        "regularized-l1",
        partial(RegularizedRouting, "l1", strength=0.1, rate=0.01, levels=5),
        shares=False,
    ),
    RoutingCase("scaled_distance", partial(ScaledDistanceRouting)),
    RoutingCase(
        "scaled_distance-sample",
        partial(
            ScaledDistanceRouting, distance_scale="sample", gradient="full"
        ),
    ),
    RoutingCase(
        "scaled_distance-levels", partial(ScaledDistanceRouting, levels=5)
    ),
    RoutingCase("self_attention", partial(SelfAttentionRouting)),
    RoutingCase(
        "self_attention-sharp", partial(SelfAttentionRouting, sharpness=5.0)
    ),
    RoutingCase(
        "self_attention-levels",
        partial(SelfAttentionRouting, gradient="last", levels=5),
    ),
    RoutingCase("uniform", partial(UniformRouting)),
    RoutingCase("uniform-levels", partial(UniformRouting, levels=5)),
]

LOSSES = [
    LossCase("margin", partial(MarginLoss)),
    LossCase(
        "margin-custom",
        partial(MarginLoss, 0.8, 0.2, 0.3, reduction="sum", name="custom"),
    ),
    LossCase(
        "coupling", partial(CouplingLoss), of_classes=False, of_routing=True
    ),
    LossCase(
        "coupling-types",
        partial(CouplingLoss, 0.5, share=0.2, places=4, name="custom"),
        of_classes=False,
        of_routing=True,
    ),
    LossCase(
        "counterfactual",
        partial(CounterfactualLoss),
        of_classes=False,
        of_routing=True,
    ),
    LossCase(
        "counterfactual-custom",
        partial(CounterfactualLoss, 2.0, 0.5, m_plus=0.8, name="custom"),
        of_classes=False,
        of_routing=True,
    ),
    LossCase("evidence", partial(EvidenceLoss), perfect=False),
    LossCase(
        "evidence-custom",
        partial(EvidenceLoss, 0.0, reduction="sum", name="custom"),
        perfect=False,
    ),
    LossCase(
        "presence",
        partial(PresenceLoss),
        of_classes=False,
        of_routing=True,
    ),
    LossCase("spread", partial(SpreadLoss)),
    LossCase(
        "spread-custom",
        partial(SpreadLoss, 0.7, reduction="sum", name="custom"),
    ),
    LossCase("reconstruction", partial(ReconstructionLoss), of_classes=False),
    LossCase(
        "reconstruction-custom",
        partial(ReconstructionLoss, 0.1, reduction="sum", name="custom"),
        of_classes=False,
    ),
]

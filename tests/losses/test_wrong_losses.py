"""Errors of losses: wrong settings, and shapes that do not fit."""

import numpy as np

from tests.refusals import assert_refused, refusals
from tfcaps import losses


@refusals(
    """
CounterfactualLoss(-1)
    `necessity` must not be negative. Received: necessity=-1.
CounterfactualLoss(1.0, -2)
    `sufficiency` must not be negative. Received: sufficiency=-2.
CouplingLoss(-1)
    `spread` must not be negative. Received: spread=-1.
CouplingLoss(1.0, -2)
    `polarization` must not be negative. Received: polarization=-2.
CouplingLoss(crowding=-3)
    `crowding` must not be negative. Received: crowding=-3.
EvidenceLoss(-1.0)
PresenceLoss(-1.0)
ReconstructionLoss(-1)
    must not be negative. Received:
SpreadLoss(0.0)
    `margin` must be in (0, 1]. Received: margin=0.0.
SpreadLoss(1.1)
    `margin` must be in (0, 1]. Received: margin=1.1.
IncreaseMargin(SpreadLoss(), 0)
    `steps` must be positive. Received: steps=0.
HardenMargin(SpreadLoss())
    `loss` must be a `MarginLoss`. Received: loss=
HardenMargin(MarginLoss(), epoch=-1)
    `epoch` must not be negative. Received: epoch=-1.
MarginLoss()(zeros(2, 4), zeros(2, 3))
    Targets must be [batch, classes], or class indices [batch] or [batch, 1].
    Received: targets (2, 4) for 3 classes.
MarginLoss()(zeros(2, 3, 1), zeros(2, 3))
MarginLoss()(zeros(), zeros(2, 3))
SpreadLoss()(zeros(2, 4), zeros(2, 3))
    Targets must be [batch, classes], or class indices [batch] or [batch, 1].
MarginLoss()(zeros(3), zeros(3))
MarginLoss()(zeros(3), zeros(2, 3, 3, 2))
SpreadLoss()(zeros(3), zeros(3))
SpreadLoss()(zeros(3), zeros(2, 3, 3, 2))
    Loss takes predictions [batch, classes]. Received: predictions of the shape
MarginLoss()(zeros(3), zeros(3, 3, 3))
    MarginLoss takes predictions [batch, classes]. Received: predictions of the
    shape (3, 3, 3). Of poses [batch, classes, components] take the lengths: add
    the layer `tfcaps.layers.Length()` to the model.
SpreadLoss()(zeros(3, 3), zeros(3, 3, 3))
    add the layer `tfcaps.layers.Length()` to the model.
CouplingLoss()(zeros(3), zeros(3, 3))
    CouplingLoss takes predictions [batch, children, classes].
CounterfactualLoss()(zeros(3), zeros(3, 3))
    CounterfactualLoss takes predictions [batch, 3, classes].
SpreadLoss()(zeros(2), zeros(2, 1))
CounterfactualLoss(margin=0.5)(zeros(2), zeros(2, 3, 1))
    compares classes, of which there must be at least two. Received:
ReconstructionLoss()(zeros(2, 4, 4, 1), zeros(2, 4, 4, 3))
    Images and reconstructions must have as many values. Received: images (2, 4,
    4, 1), reconstructions (2, 4, 4, 3).
""",
    **vars(losses),
    zeros=lambda *shape: np.zeros(shape, "float32"),
)
def test_wrong_calls_are_refused(call, said):
    assert_refused(call, said)

"""Errors of losses: wrong settings, and shapes that do not fit."""

import re
from functools import partial

import numpy as np
import pytest

from tfcaps.losses import (
    CounterfactualLoss,
    CouplingLoss,
    EvidenceLoss,
    HardenMargin,
    IncreaseMargin,
    MarginLoss,
    PresenceLoss,
    ReconstructionLoss,
    SpreadLoss,
)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (partial(CounterfactualLoss, -1), "Received: necessity=-1"),
        (partial(CounterfactualLoss, 1.0, -2), "Received: sufficiency=-2"),
        (partial(CouplingLoss, -1), "Received: spread=-1"),
        (partial(CouplingLoss, 1.0, -2), "Received: polarization=-2"),
        (partial(CouplingLoss, crowding=-3), "Received: crowding=-3"),
        (partial(EvidenceLoss, -1.0), "must not be negative"),
        (partial(PresenceLoss, -1.0), "must not be negative"),
        (partial(ReconstructionLoss, -1), "negative. Received: weight=-1."),
        (partial(SpreadLoss, 0.0), "must be in (0, 1]. Received: margin=0.0."),
        (partial(SpreadLoss, 1.1), "must be in (0, 1]. Received: margin=1.1."),
        (partial(IncreaseMargin, SpreadLoss(), 0), "positive. Received: steps"),
        (partial(HardenMargin, SpreadLoss()), "must be a `MarginLoss`. Receiv"),
        (partial(HardenMargin, MarginLoss(), epoch=-1), "Received: epoch=-1"),
    ],
)
def test_wrong_settings_are_refused(make, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        make()


@pytest.mark.parametrize(
    ("loss", "targets", "predictions", "said"),
    [
        *(
            (
                MarginLoss(),
                targets,
                (2, 3),
                "Targets must be [batch, classes], or class indices [batch] or "
                f"[batch, 1]. Received: targets {targets} for 3 classes.",
            )
            for targets in ((2, 4), (2, 3, 1), ())
        ),
        (SpreadLoss(), (2, 4), (2, 3), "Received: targets (2, 4) for 3"),
        *(
            (loss, (3,), shape, "Received: predictions of the shape")
            for loss in (MarginLoss(), SpreadLoss())
            for shape in ((3,), (2, 3, 3, 2))
        ),
        (CouplingLoss(), (3,), (3, 3), "CouplingLoss takes predictions [b"),
        (CounterfactualLoss(), (3,), (3, 3), "takes predictions [batch, 3, "),
        # One class has nothing to be compared with.
        (SpreadLoss(), (2,), (2, 1), "must be at least two. Rece"),
        (CounterfactualLoss(margin=0.5), (2,), (2, 3, 1), "at least two. Rece"),
        (
            ReconstructionLoss(),
            (2, 4, 4, 1),
            (2, 4, 4, 3),
            "Images and reconstructions must have as many values. Received: "
            "images (2, 4, 4, 1), reconstructions (2, 4, 4, 3).",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused(loss, targets, predictions, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        loss(np.zeros(targets), np.zeros(predictions, "float32"))

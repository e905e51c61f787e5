"""Losses of class lengths, of reconstructions and of couplings."""

from tfcaps.losses.constellation import (
    CellLoss,
    EvidenceLoss,
    PresenceLoss,
    constellation_losses,
)
from tfcaps.losses.counterfactual import CounterfactualLoss
from tfcaps.losses.coupling import CouplingLoss
from tfcaps.losses.margin import HardenMargin, MarginLoss
from tfcaps.losses.reconstruction import ReconstructionLoss
from tfcaps.losses.spread import IncreaseMargin, SpreadLoss, spread_margin

__all__ = [
    "CellLoss",
    "CounterfactualLoss",
    "CouplingLoss",
    "EvidenceLoss",
    "HardenMargin",
    "IncreaseMargin",
    "MarginLoss",
    "PresenceLoss",
    "ReconstructionLoss",
    "SpreadLoss",
    "constellation_losses",
    "spread_margin",
]

"""Losses of class lengths, of reconstructions and of couplings."""

from tfcaps.losses.counterfactual import CounterfactualLoss
from tfcaps.losses.coupling import CouplingLoss
from tfcaps.losses.margin import HardenMargin, MarginLoss
from tfcaps.losses.reconstruction import ReconstructionLoss
from tfcaps.losses.spread import IncreaseMargin, SpreadLoss, spread_margin

__all__ = [
    "CounterfactualLoss",
    "CouplingLoss",
    "HardenMargin",
    "IncreaseMargin",
    "MarginLoss",
    "ReconstructionLoss",
    "SpreadLoss",
    "spread_margin",
]

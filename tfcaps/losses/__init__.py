"""Losses of class lengths, of reconstructions and of couplings."""

from tfcaps.losses.counterfactual import CounterfactualLoss
from tfcaps.losses.coupling import CouplingLoss
from tfcaps.losses.margin import MarginLoss
from tfcaps.losses.reconstruction import ReconstructionLoss
from tfcaps.losses.spread import SpreadLoss

__all__ = [
    "CounterfactualLoss",
    "CouplingLoss",
    "MarginLoss",
    "ReconstructionLoss",
    "SpreadLoss",
]

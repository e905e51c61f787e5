"""Callbacks of networks of parts."""

from tfcaps.parts.estimation import BlueprintEstimation as BlueprintEstimation
from tfcaps.parts.estimation import HardenParts as HardenParts

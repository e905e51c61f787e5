"""Networks of parts: types that stand at places, and classes made of them."""

from tfcaps.parts.body_plan_model import BodyPlanModel
from tfcaps.parts.constellation_caps import ConstellationCaps
from tfcaps.parts.losses import (
    CellLoss,
    EvidenceLoss,
    PresenceLoss,
    constellation_losses,
)
from tfcaps.parts.map_caps import MapCaps, StrongestParts
from tfcaps.parts.model import ConstellationModel, without_spare_types
from tfcaps.parts.part_caps import PartCaps
from tfcaps.parts.template_decoder import TemplateDecoder

__all__ = [
    "BodyPlanModel",
    "CellLoss",
    "ConstellationCaps",
    "ConstellationModel",
    "EvidenceLoss",
    "MapCaps",
    "PartCaps",
    "PresenceLoss",
    "StrongestParts",
    "TemplateDecoder",
    "constellation_losses",
    "without_spare_types",
]

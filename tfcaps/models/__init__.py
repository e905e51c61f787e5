"""Capsule networks as Keras functional models, and some that are trained."""

from tfcaps.models.body_plan_capsnet import body_plan_capsnet
from tfcaps.models.constellation_capsnet import constellation_capsnet
from tfcaps.models.deepcaps import deepcaps
from tfcaps.models.dr_capsnet import (
    affine_capsnet,
    dr_capsnet,
    gamma_capsnet,
    multilayer_capsnet,
)
from tfcaps.models.efficient_capsnet import (
    efficient_capsnet,
    efficient_conv_capsnet,
)
from tfcaps.models.em_capsnet import em_capsnet
from tfcaps.models.load_pretrained import load_pretrained
from tfcaps.models.parts_capsnet import parts_capsnet
from tfcaps.models.with_decoder import with_decoder

__all__ = [
    "affine_capsnet",
    "body_plan_capsnet",
    "constellation_capsnet",
    "deepcaps",
    "dr_capsnet",
    "efficient_capsnet",
    "efficient_conv_capsnet",
    "em_capsnet",
    "gamma_capsnet",
    "load_pretrained",
    "multilayer_capsnet",
    "parts_capsnet",
    "with_decoder",
]

"""Capsule layers for Keras 3."""

from tfcaps.layers.capsule_conv import CapsuleConv2D
from tfcaps.layers.class_caps import ClassCaps, FcCaps
from tfcaps.layers.conv_caps import ConvCaps
from tfcaps.layers.conv_caps_3d import ConvCaps3D
from tfcaps.layers.decoder import Decoder
from tfcaps.layers.length import Length
from tfcaps.layers.primary_caps import PrimaryCaps
from tfcaps.layers.primary_matrix_caps import PrimaryMatrixCaps
from tfcaps.layers.squash import Squash

__all__ = [
    "CapsuleConv2D",
    "ClassCaps",
    "ConvCaps",
    "ConvCaps3D",
    "Decoder",
    "FcCaps",
    "Length",
    "PrimaryCaps",
    "PrimaryMatrixCaps",
    "Squash",
]

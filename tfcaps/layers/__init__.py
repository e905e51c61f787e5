"""Capsule layers for Keras."""

from tfcaps.layers.class_caps import ClassCaps, FcCaps
from tfcaps.layers.length import Length
from tfcaps.layers.primary_caps import PrimaryCaps

__all__ = ["ClassCaps", "FcCaps", "Length", "PrimaryCaps"]

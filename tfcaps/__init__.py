"""Capsule layers for Keras, and routing entropy minimisation (REM)."""

from tfcaps import layers, losses, models, ops, rem, routing

__all__ = ["layers", "losses", "models", "ops", "rem", "routing"]
__version__ = "0.1.0"

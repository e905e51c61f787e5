"""Capsule layers for Keras, and routing entropy minimisation (REM)."""

import keras as _keras  # noqa: F401 (loads the backend)

from tfcaps import versions

versions.check(versions.loaded())

from tfcaps import layers, losses, models, ops, rem, routing  # noqa: E402

__all__ = ["layers", "losses", "models", "ops", "rem", "routing"]
__version__ = "0.1.0"

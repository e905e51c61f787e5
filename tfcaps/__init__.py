"""Capsule layers for Keras, and routing entropy minimisation (REM)."""

import tfcaps.versions as versions  # noqa: F401 (loads Keras and checks it)
from tfcaps import (
    callbacks,
    export,
    layers,
    losses,
    models,
    ops,
    parts,
    rem,
    routing,
)
from tfcaps.memory import keep_memory

__all__ = [
    "callbacks",
    "export",
    "keep_memory",
    "layers",
    "losses",
    "models",
    "ops",
    "parts",
    "rem",
    "routing",
]
__version__ = "0.3.0"

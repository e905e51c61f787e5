"""Published capsule networks as Keras functional models."""

from tfcaps.models.dr_capsnet import dr_capsnet

__all__ = ["dr_capsnet"]

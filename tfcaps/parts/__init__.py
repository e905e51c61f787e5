"""Networks of parts: types that stand at places, and classes made of them."""

from tfcaps.parts.model import ConstellationModel as ConstellationModel

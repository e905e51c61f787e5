"""Networks of parts: types that stand at places, and classes made of them."""

from tfcaps.parts.body_plan_model import BodyPlanModel as BodyPlanModel
from tfcaps.parts.model import ConstellationModel as ConstellationModel

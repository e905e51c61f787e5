"""What class capsules of parts that have places have in common."""

import math
from typing import Any

import keras
from keras import ops

from tfcaps.configs import Configured
from tfcaps.ops import Tensor, check_quantizer, rounded


def add_float32(
    layer: Any, name: str, shape: Any, initializer: Any, **how: Any
) -> None:
    """Gives a layer the weight of this name, which no policy casts."""
    how |= {"shape": shape, "initializer": initializer, "name": name}
    setattr(layer, name, layer.add_weight(autocast=False, **how))


class OfPlacedParts(Configured, keras.layers.Layer):
    """Says of children `[b, h, w, t, 2 + ...]` what `tfcaps.rem` asks for."""

    receptive_windows = (None,)

    def __init__(
        self, num_capsules: int, levels: int | None, mode: str, **kwargs: Any
    ):
        check_quantizer(2 if levels is None else levels, mode)
        # Places are float32 whatever the policy: half a pixel is much.
        super().__init__(**{"autocast": False, **kwargs})
        self.num_capsules = num_capsules
        self.levels = levels
        self.mode = mode

    def rounded(self, couplings: Tensor) -> Tensor:
        """Returns couplings at their levels, if there are any."""
        return rounded(couplings, self.levels, self.mode)

    def children_shape(self, input_shape: Any) -> tuple[int, ...]:
        """Returns rows, columns and types of the children."""
        return tuple(input_shape[1:-1])

    def child_places(self, inputs: Tensor) -> Tensor:
        """Returns rows and columns `[b, i, 2]` of the children in pixels."""
        children = math.prod(inputs.shape[1:-1])
        return ops.reshape(inputs[..., :2], (-1, children, 2))

"""The squash as a layer."""

from typing import Any

import keras
import numpy as np

from tfcaps.configs import Configured
from tfcaps.layers.units import LayerUnits
from tfcaps.ops import SQUASHES, Tensor, check_one_of


@keras.saving.register_keras_serializable(package="tfcaps")
class Squash(Configured, keras.layers.Layer):
    """Shrinks capsules to a length below one.

    Args:
        squash: `"hinton"` (dynamic routing) or `"efficient"`
            (Efficient-CapsNet). Defaults to `"hinton"`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        `[..., d]`.

    Output shape:
        The same.

    Raises:
        ValueError: If `squash` is unknown.

    Example:

    >>> import numpy as np
    >>> Squash()(np.array([[3.0, 4.0]], "float32")).numpy().round(2).tolist()
    [[0.5799999833106995, 0.7699999809265137]]
    """

    def __init__(self, squash: str = "hinton", **kwargs: Any):
        check_one_of(SQUASHES, squash=squash)
        super().__init__(**kwargs)
        self.squash = squash

    def call(self, inputs: Tensor) -> Tensor:
        return SQUASHES[self.squash](inputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return tuple(input_shape)

    receptive_windows = ()

    def layer_units(self, input_shapes: Any) -> LayerUnits | None:
        if len(input_shapes[0]) != 5:
            return None  # channels of a map are components of one capsule
        return LayerUnits(
            sources=lambda x: x,
            value=lambda x: np.where(x[0] == 0, 0.0, np.nan),
        )

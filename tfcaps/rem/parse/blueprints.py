"""Where the parts of a class are, read from the weights of a network."""

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps.graphs import encoder, last_routed_layer
from tfcaps.layers import ConstellationCaps


def blueprints(model: keras.Model) -> NDArray[np.float64] | None:
    """Returns where each type of part stands in each class.

    Args:
        model: A functional or sequential model.

    Returns:
        Array `[j, t, 2]`, float64: rows and columns in pixels from the place of
        class `j` to its part of type `t`, NaN where the class has no such part.
        `None` if the last routed layer has no blueprint, which only
        `ConstellationCaps` have.

    Raises:
        ValueError: If the model has no routed layer.

    Example:

    >>> from tfcaps.models import constellation_capsnet
    >>> network = constellation_capsnet((20, 20, 1), 10, part_types=5)
    >>> blueprints(network).shape
    (10, 5, 2)
    """
    layer = last_routed_layer(encoder(model))
    if not isinstance(layer, ConstellationCaps):
        return None
    shifts = ops.convert_to_numpy(layer.shifts).astype(np.float64)
    slots = ops.convert_to_numpy(layer.slots)
    shifts[slots < 0.5] = np.nan
    return np.swapaxes(shifts, 0, 1)

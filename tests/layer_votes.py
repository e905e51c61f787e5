"""The votes of a layer, whether it holds them or keeps their factors."""

import numpy as np
from keras import ops


def votes_of(layer, children):
    """Returns the votes `[b, i, j, d]` that a built layer casts.

    Component `d` of a vote is its dot product with a pose that has a one there.
    """
    children = ops.convert_to_tensor(children)
    votes = layer._votes(children, layer.transformation)
    shape = votes.zero_poses().shape
    units = np.eye(shape[-1], dtype="float32")
    return np.stack(
        [votes.agreement(np.broadcast_to(unit, shape)) for unit in units],
        axis=-1,
    )

"""Trees that tests make by hand."""

import numpy as np

from tfcaps.rem import Trees


def made(towards, types, places, **more):
    """Returns trees of couplings `[n, children]` with the class of each image.

    Children above 1/3 are in the tree, and as active as they are coupled.
    """
    towards = np.asarray(towards, np.float32)
    count = len(towards)
    fields = {
        "predicted": np.zeros(count, int),
        "lengths": np.ones((count, 2), np.float32),
        "couplings": np.zeros((*towards.shape, 0)),
        "towards": towards,
        "codes": np.zeros(towards.shape, np.uint8),
        "in_tree": towards > 1 / 3,
        "activations": towards,
        "types": np.asarray(types),
        "places": np.broadcast_to(places, (*towards.shape, 2)),
    }
    return Trees(**{**fields, **more})

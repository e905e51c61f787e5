"""Arrays of usual and of extreme values."""

import numpy as np


def filled(kind, shape, rng, largest):
    """Returns float32 values of a kind, of at most `largest`."""
    top = np.log10(largest)
    values = rng.uniform(-1.0, 1.0, size=shape)
    scale = {
        "zero": 0.0,
        "tiny": 10.0 ** rng.uniform(-38, -4),
        "random": 1.0,
        "equal": 0.5 / np.where(values == 0, 1.0, values),
        "pruned": rng.choice([0.0, 1.0], size=shape),
        # Of every size, in one tensor.
        "ladder": 10.0 ** rng.uniform(-38, 0, size=shape),
        "mixed": 10.0 ** rng.uniform(-38, top, size=shape),
        "large": largest,
        "equal_large": largest / np.where(values == 0, 1.0, values),
    }[kind]
    return (values * scale).astype("float32")


def filled_activations(shape, rng, largest=1.0):
    """Returns activations of some kind, often of dead children."""
    kind = rng.choice(["zero", "pruned", "random", "ladder", "equal_large"])
    return np.abs(filled(kind, shape, rng, largest))

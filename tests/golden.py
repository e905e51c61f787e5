"""Expected numbers: public implementations, run on fixed inputs."""

import json
from pathlib import Path

import numpy as np

_FOLDER = Path(__file__).parent / "golden"


def load(name):
    """Returns the arrays of `tests/golden/<name>.npz` by their names."""
    with np.load(_FOLDER / f"{name}.npz") as arrays:
        return dict(arrays)


def all_parameter_counts():
    """Returns totals and counts per layer, by the reference model's name."""
    text = (_FOLDER / "10_parameter_counts.json").read_text(encoding="utf-8")
    return json.loads(text)


def published_votes():
    """Returns the votes `[1, 4, 3, 2]` of the worked-out examples."""
    i, j, d = np.ogrid[:4, :3, :2]
    votes = 1.5 * np.sin(1 + i + 2 * j + 3 * d + i * j)
    return votes[None].astype("float32")


# The lengths of the children that cast them.
PUBLISHED_ACTIVATIONS = np.array([[0.9, 0.5, 0.7, 0.2]], "float32")

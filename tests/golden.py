"""Expected numbers: public implementations, run on fixed inputs."""

import json
from pathlib import Path

import numpy as np

_FOLDER = Path(__file__).parent / "golden"


def load(name):
    """Returns the arrays of `tests/golden/<name>.npz` by their names."""
    with np.load(_FOLDER / f"{name}.npz") as arrays:
        return dict(arrays)


def parameter_counts(model):
    """Returns the totals and the counts per layer of a reference model."""
    text = (_FOLDER / "10_parameter_counts.json").read_text(encoding="utf-8")
    return json.loads(text)[model]

"""Expected numbers: public implementations, run on fixed inputs."""

import json
from pathlib import Path

import numpy as np

from tests.tolerance import assert_close

_FOLDER = Path(__file__).parent / "golden"


def load(name):
    """Returns the arrays of `tests/golden/<name>.npz` by their names."""
    with np.load(_FOLDER / f"{name}.npz") as arrays:
        return dict(arrays)


def assert_golden(golden, name, atol=1e-5, **arrays):
    """Checks arrays against those of `load`: `name` with each key for `{}`."""
    for key, array in arrays.items():
        assert_close(array, golden[name.format(key)], atol, err_msg=key)


def all_parameter_counts():
    """Returns totals and counts per layer, by the reference model's name."""
    text = (_FOLDER / "10_parameter_counts.json").read_text(encoding="utf-8")
    return json.loads(text)

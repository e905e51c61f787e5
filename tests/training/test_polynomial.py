"""The schedule of a run reaches its sparsity, with tfmot and without it."""

import pytest
import tensorflow  # noqa: F401 (on JAX conftest.py leaves this file out)

from tests.tolerance import SUMS
from training import configs, pruning


@pytest.mark.parametrize(
    ("epochs", "steps"), [(1, 1), (1, 29), (12, 422), (40, 29)]
)
def test_without_tfmot_it_is_the_same(epochs, steps, monkeypatch):
    config = configs.Config(epochs=epochs, final_sparsity=0.8)
    theirs = pruning.polynomial_schedule(config, steps)
    monkeypatch.setattr(pruning, "_has_tfmot", lambda: False)
    ours = pruning.polynomial_schedule(config, steps)
    updates = []
    for step in range(1, epochs * steps + 1):
        is_time, sparsity = theirs(step)
        assert ours(step)[0] == bool(is_time)
        if is_time:
            updates.append(float(sparsity))
            assert ours(step)[1] == pytest.approx(updates[-1], abs=SUMS)
    assert updates[-1] == pytest.approx(0.8, abs=SUMS)
    assert len(updates) <= 201

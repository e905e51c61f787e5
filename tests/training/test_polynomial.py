"""The schedule of a run is tfmot's and reaches its sparsity."""

import pytest
import tensorflow  # noqa: F401 (on JAX conftest.py leaves this file out)

from tests.tolerance import SUMS
from training import configs, pruning


@pytest.mark.parametrize(
    ("epochs", "steps"), [(1, 1), (1, 29), (12, 42), (40, 9)]
)
def test_the_schedule_is_that_of_tfmot(epochs, steps):
    tfmot = pytest.importorskip("tensorflow_model_optimization")
    config = configs.Config(epochs=epochs, final_sparsity=0.8)
    ours = pruning.polynomial_schedule(config, steps)
    theirs = tfmot.sparsity.keras.PolynomialDecay(
        0.0, ours.final_sparsity, ours.begin, ours.end, frequency=ours.every
    )
    updates = []
    for step in range(1, epochs * steps + 1):
        is_time, sparsity = theirs(step)
        assert ours(step)[0] == bool(is_time)
        if is_time:
            updates.append(float(sparsity))
            assert ours(step)[1] == pytest.approx(updates[-1], abs=SUMS)
    assert updates[-1] == pytest.approx(0.8, abs=SUMS)
    assert len(updates) <= 201

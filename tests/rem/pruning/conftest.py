import numpy as np
import pytest


@pytest.fixture
def images(rng):
    """Images and labels of three batches, for `tests.networks.tiny_capsnet`."""
    return rng.random((24, 8, 8, 1), dtype=np.float32), np.arange(24) % 3

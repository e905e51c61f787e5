"""Settings and fixtures of all tests."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import pytest

from training import fit

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    # Two replicas on one machine. TensorFlow asks for it before it starts up.
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )


@pytest.fixture(autouse=True)
def seed_keras():
    keras.utils.set_random_seed(0)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def two_replicas():
    """One strategy for all tests: two would mix up their collectives."""
    return fit.make_strategy("mirrored")

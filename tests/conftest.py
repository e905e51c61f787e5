"""Settings and fixtures of all tests."""

import os
import re
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Or JAX would turn float64 into float32.
os.environ.setdefault("JAX_ENABLE_X64", "1")
# Most of the time on JAX is LLVM's, optimising what runs once.
if not os.environ.get("NIGHTLY"):
    os.environ.setdefault(
        "XLA_FLAGS",
        "--xla_backend_optimization_level=0"
        " --xla_llvm_disable_expensive_passes=true",
    )

import keras
import numpy as np
import pytest

from tests.backends import TENSORFLOW
from training import devices

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    # Two replicas on one machine. TensorFlow asks for it before it starts up.
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )


else:
    # Keras itself imports TensorFlow where it can. Nobody shall need it, and a
    # test that imports it is about TensorFlow.
    for package in TENSORFLOW:
        sys.modules[package] = None
    collect_ignore = [
        path.name
        for path in Path(__file__).parent.glob("test_*.py")
        if re.search("^import tensorflow", path.read_text("utf-8"), re.M)
    ]


@pytest.fixture(autouse=True)
def seed_keras():
    keras.utils.set_random_seed(0)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def two_replicas():
    """One strategy for all tests: two would mix up their collectives."""
    return devices.make_strategy("mirrored")

"""Settings and fixtures of all tests."""

import os
import re
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# With oneDNN, which processors with AVX-512 or AMX get, TensorFlow keeps all
# memory that it ever had in a pool of its own.
os.environ.setdefault("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1")
# Or JAX would turn float64 into float32.
os.environ.setdefault("JAX_ENABLE_X64", "1")
# What one worker has compiled, the other need not compile again.
if os.environ.get("KERAS_BACKEND") == "jax":
    cache = Path(__file__).parents[1] / ".pytest_cache" / "jax"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Most of the time on JAX is LLVM's, optimising what runs once. Level 0 there
# rounds EM's couplings by more than the tests allow, on some processors.
if not (os.environ.get("NIGHTLY") or os.environ.get("AS_USERS")):
    level = int(os.environ.get("KERAS_BACKEND") == "jax")
    flags = (
        f"--xla_backend_optimization_level={level}"
        " --xla_llvm_disable_expensive_passes=true"
    )
    given = os.environ.get("XLA_FLAGS", "")
    if flags not in given:
        os.environ["XLA_FLAGS"] = f"{flags} {given}".strip()

import numpy as np
import pytest
from filelock import FileLock

collect_ignore = []


def pytest_configure(config):
    """Prepares the backend, but for what only gives tests out to workers."""
    is_worker = hasattr(config, "workerinput")
    if config.getoption("numprocesses", None) and not is_worker:
        return
    import keras

    from tests.backends import TENSORFLOW
    from tests.memory import Cleaner

    config.pluginmanager.register(Cleaner())
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # Two replicas on one machine. TensorFlow asks for it before it starts.
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * 2,
        )
        return
    # Keras itself imports TensorFlow where it can. Nobody shall need it, and a
    # test that imports it is about TensorFlow.
    for package in TENSORFLOW:
        sys.modules[package] = None
    folder = Path(__file__).parent
    collect_ignore.extend(
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if re.search("^import tensorflow", path.read_text("utf-8"), re.M)
    )


def pytest_collection_modifyitems(items):
    """Puts first what takes the finished run: no worker waits for another.

    It is slow, as what takes all figures is.
    """
    for item in items:
        if {"finished", "written"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda x: "finished" not in getattr(x, "fixturenames", ()))


@pytest.fixture(autouse=True)
def seed_keras():
    import keras

    keras.utils.set_random_seed(0)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def two_replicas():
    """One strategy for all tests: two would mix up their collectives."""
    from training import devices

    return devices.make_strategy("mirrored")


@pytest.fixture(scope="session")
def finished(tmp_path_factory, worker_id):
    """The folder of a run of two epochs of two steps; nobody changes it."""
    from tests.training.test_run import command, tiny_data

    base = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        base = base.parent  # of all workers: one makes it, the others wait
    folder = base / "finished"
    with FileLock(base / "finished.lock"):
        if not (folder / "run" / "report.html").exists():
            folder.mkdir()
            data = tiny_data(folder / "tiny.npz")
            command(
                "--rem", "--dataset", data, "--epochs", 2, "--batch-size", 8,
                "--final-sparsity", 0.5, "--decay", 0.01,
                "--decoder", "frozen", "--out", folder / "run",
            )  # fmt: skip
    return folder / "run"


@pytest.fixture
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def photos(tmp_path):
    """A folder with ten pictures of cats, and ten of dogs."""
    from tests.training.datasets.test_datasets import write_image

    for name in ("cats", "dogs"):
        for k in range(10):
            write_image(tmp_path / "photos" / name / f"{k}.png")
    return tmp_path / "photos"

"""The devices of a run, and its processes.

`mirrored` copies a model to all GPUs of one machine (TensorFlow).
`data-parallel` does so for all devices of one or more machines (JAX), one
process for each machine, all called with the same flags and

    KERAS_BACKEND=jax
    KERAS_DISTRIBUTION_JOB_ADDRESSES=host0:12345   the first process
    KERAS_DISTRIBUTION_NUM_PROCESSES=2
    KERAS_DISTRIBUTION_PROCESS_ID=0                1 on the second machine

which `keras.distribution.initialize` reads. The first process alone writes
files, measures and draws.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import keras

from cli import UserError

# The backend that each of them needs.
STRATEGIES = {"none": None, "mirrored": "tensorflow", "data-parallel": "jax"}
Strategy = Any  # of TensorFlow or Keras: both have a `scope()`
_XLA_FLAG = "--xla_gpu_deterministic_ops"


def make_strategy(name: str) -> Strategy | None:
    """Returns the strategy for all models of a run, or None for one device.

    Two strategies in one process would mix up their collective operations.
    Call it before anything is computed: processes have to find each other.
    """
    needed = STRATEGIES[name]
    if needed not in (None, keras.backend.backend()):
        raise UserError(
            f"--strategy {name} needs the environment variable "
            f"KERAS_BACKEND={needed}; it is {keras.backend.backend()!r}."
        )
    if name == "mirrored":
        import tensorflow as tf

        devices = tf.config.list_logical_devices("GPU")
        devices = devices or tf.config.list_logical_devices("CPU")
        return tf.distribute.MirroredStrategy([d.name for d in devices])
    if name == "data-parallel":
        if "KERAS_DISTRIBUTION_NUM_PROCESSES" in os.environ:
            keras.distribution.initialize()
        # Each process cuts its own part of a batch.
        return keras.distribution.DataParallel(auto_shard_dataset=False)
    return None


def make_deterministic() -> None:
    """Makes every operation of this process give the same bits each time."""
    if not _is_on_jax():
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()
        return
    flags = os.environ.get("XLA_FLAGS", "")
    if _jax().default_backend() == "gpu" and _XLA_FLAG not in flags:
        raise UserError(
            "--deterministic on a GPU with JAX needs the environment variable "
            f"XLA_FLAGS={_XLA_FLAG}=true."
        )


def scope(strategy: Strategy | None) -> contextlib.AbstractContextManager[Any]:
    """Returns the context in which models are made and trained."""
    return strategy.scope() if strategy else contextlib.nullcontext()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Leaves data parallelism for a while."""
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(distribution)


@contextlib.contextmanager
def dtype_policy(name: str) -> Iterator[None]:
    """Sets Keras' dtype policy for the layers that are made within."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def num_shards(strategy: Strategy | None) -> int:
    """Returns into how many equal parts JAX cuts a batch."""
    if isinstance(strategy, keras.distribution.DataParallel):
        return strategy.num_model_replicas
    return 1


def process() -> int:
    """Returns which process this is, from 0; the first one writes files."""
    return _jax().process_index() if _is_on_jax() else 0


def num_processes() -> int:
    """Returns how many processes train together."""
    return _jax().process_count() if _is_on_jax() else 1


def wait() -> None:
    """Lets the processes wait for each other."""
    if num_processes() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices("tfcaps")


def accelerators() -> list[str]:
    """Returns what the GPUs of this run are called, none without any."""
    if _is_on_jax():
        found = [d for d in _jax().devices() if d.platform != "cpu"]
        return [device.device_kind for device in found]
    import tensorflow as tf

    details = tf.config.experimental.get_device_details
    gpus = tf.config.list_physical_devices("GPU")
    return [details(gpu).get("device_name", "GPU") for gpu in gpus]


def local_copy(model: keras.Model) -> keras.Model:
    """Returns a copy of a model on the devices of this process alone.

    Without data parallelism it is the model itself.
    """
    if keras.distribution.distribution() is None:
        return model
    weights = model.get_weights()
    with alone():
        copy = keras.models.clone_model(model)
        copy.set_weights(weights)
    return copy


def _is_on_jax() -> bool:
    return keras.backend.backend() == "jax"


def _jax() -> Any:
    import jax

    return jax

"""Whole steps on one GPU, beside their floor; no TensorFlow on JAX."""

import keras

from benchmarks import models
from benchmarks.measure import Row, Settings, in_new_process
from training.devices import accelerators

NETWORKS = (
    "dr_capsnet",
    "gamma_capsnet",
    "deepcaps",
    "em_capsnet",
    "efficient_capsnet",
    "constellation_capsnet",
)
_BATCH = 128


def measure(settings: Settings) -> list[Row]:
    """Times training and prediction, and how much memory training takes."""
    rows = []
    for name in NETWORKS[:1] if settings.quick else NETWORKS:
        size = models.size_of(name, 2 if settings.quick else _BATCH)
        peak = in_new_process(peak_of_training, name, size.batch)
        first, floor = models.measure_network(name, size, settings.rounds)
        rows += [first._replace(peak_mb=peak), floor]
    return rows


def peak_of_training(name: str, batch: int) -> float | None:
    """Returns the most megabytes on the GPU in two steps of this process.

    It must have done nothing before.
    """
    step = models.make_training_step(name, batch)
    step()
    step()
    if not accelerators():
        return None
    if keras.backend.backend() == "jax":
        import jax

        return jax.devices()[0].memory_stats()["peak_bytes_in_use"] / 1e6

    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")["peak"] / 1e6

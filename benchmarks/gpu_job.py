"""Measures whole steps on one GPU: what `benchmarks/gpu.py` does."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from benchmarks import command, machine, models, tables
from benchmarks.measure import Row, call_elsewhere
from cli import UserError

_BACKENDS = ("jax", "tensorflow")
_INTRODUCTION = """\
Times are medians over rounds in which a network and its floor take turns:
forward is a prediction, a step Keras' `train_on_batch`, from a batch in the
host's memory to its loss there, with Adam. The floor is the same network up to
the children of its first routed layer, with one dense layer instead of all that
follows. Peak memory (MB are 10^6 bytes) is that of training steps on the GPU in
a process of their own, compiling included."""


def run(settings: Mapping[str, Any], out: Path) -> None:
    """Measures everything and writes the two files.

    Args:
        settings: `models`, `batch`, `rounds` and `quick`, as the flags.
        out: Folder of the files.
    """
    backend = keras.backend.backend()
    if backend not in _BACKENDS:
        raise UserError(
            f"this benchmark needs KERAS_BACKEND={' or '.join(_BACKENDS)}, not "
            f"{backend!r}."
        )
    gpu = _gpu_name()
    described = machine.describe(("keras", *_BACKENDS))
    described |= {"gpu": gpu, "backend": backend}
    rows: list[Row] = []
    for name in settings["models"]:
        size = models.size_of(name, settings["batch"])
        peak = None if gpu is None else _peak(name, size.batch)
        first, floor = models.measure_network(name, size, settings["rounds"])
        rows += [first._replace(peak_mb=peak and peak / 1e6), floor]
    result = {
        "machine": described,
        "settings": settings,
        "rows": [row._asdict() for row in rows],
    }
    command.write(out, "gpu", result, page(result))


def peak_of_training(name: str, batch: int) -> int | None:
    """Returns the most bytes on the GPU while this process trains two steps.

    It must have done nothing before.
    """
    step = models.make_training_step(name, batch)
    for _ in range(2):
        step()
    if keras.backend.backend() == "jax":
        import jax

        return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")

    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")["peak"]


def page(result: Mapping[str, Any]) -> str:
    """Returns the page of results: origin and the table."""
    described = result["machine"]
    where = f"{described['gpu'] or 'A CPU: no GPU was found'}, backend"
    about = tables.origin(described, result["settings"])
    sections = [
        "# Whole steps on one GPU",
        f"{where} {described['backend']}. {about}",
        _INTRODUCTION,
        tables.of_rows({"gpu": result}),
    ]
    return "\n\n".join(sections) + "\n"


def _gpu_name() -> str | None:
    """Returns the name of the first GPU, or None where there is none."""
    if keras.backend.backend() == "jax":
        import jax

        device = jax.devices()[0]
        return None if device.platform == "cpu" else device.device_kind

    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return None
    details = tf.config.experimental.get_device_details(gpus[0])
    return details.get("device_name", gpus[0].name)


def _peak(name: str, batch: int) -> int | None:
    """Returns `peak_of_training`, told by a process of its own."""
    target = "benchmarks.gpu_job:peak_of_training"
    try:
        peak: int | None = call_elsewhere(target, name=name, batch=batch)
    except RuntimeError as error:
        print(f"{name}, memory: {error}")
        return None
    return peak

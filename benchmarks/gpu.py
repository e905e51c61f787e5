"""Measures whole steps on one GPU, beside their floor.

KERAS_BACKEND=jax python -m benchmarks.gpu

writes results/gpu.json and, from it alone, results/gpu.md. Without a GPU it
runs on the CPU and says so. It needs no TensorFlow where the backend is JAX.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    # One GPU is for this process and those that measure memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

from benchmarks import common
from benchmarks.measure import Row, Settings, call_elsewhere
from cli import Parser, UserError, at_least_one
from training.models import network

_BACKENDS = ("jax", "tensorflow")
MODELS = (
    "dr_capsnet,gamma_capsnet,deepcaps,em_capsnet,efficient_capsnet,"
    "constellation_capsnet"
)
_INTRODUCTION = """\
Times are medians over rounds in which a network and its floor take turns:
forward is a prediction, a step Keras' `train_on_batch`, from a batch in the
host's memory to its loss there, with Adam. The floor is the same network up to
the children of its first routed layer, with one dense layer instead of all that
follows. Peak memory (MB are 10^6 bytes) is that of training steps on the GPU in
a process of their own, compiling included."""


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = common.make_parser("gpu", __doc__)
    add = parser.add_argument
    rounds = Settings().rounds
    for name, kind, default, text in (
        ("models", str, MODELS, "networks"),
        ("batch", at_least_one, 128, "images in a step"),
        ("rounds", at_least_one, rounds, "turns of each candidate at most"),
    ):
        text += " (default: %(default)s)"
        add(f"--{name}", type=kind, default=default, help=text)
    add(
        "--quick",
        action="store_true",
        help="one network, batches of 2 and 2 rounds, to see that it runs",
    )
    return parser


def _check(options: argparse.Namespace) -> None:
    options.models = options.models.split(",")
    for name in options.models:
        network(name)  # a wrong name shall not cost the others' time
    if options.quick:
        options.models, options.batch, options.rounds = ["dr_capsnet"], 2, 2


def run(options: argparse.Namespace) -> None:
    """Measures everything and writes the two files."""
    import keras

    from benchmarks import models

    backend = keras.backend.backend()
    if backend not in _BACKENDS:
        raise UserError(
            f"this benchmark needs KERAS_BACKEND={' or '.join(_BACKENDS)}, not "
            f"{backend!r}."
        )
    gpu = _gpu_name(backend)
    described = common.machine(("keras", *_BACKENDS))
    rows: list[Row] = []
    for name in options.models:
        size = models.size_of(name, options.batch)
        peak = None if gpu is None else _peak(name, size.batch)
        first, floor = models.measure_network(name, size, options.rounds)
        rows += [first._replace(peak_mb=peak), floor]
    names = ("models", "batch", "rounds", "quick")
    result = {
        "machine": {**described, "gpu": gpu, "backend": backend},
        "settings": {name: getattr(options, name) for name in names},
        "rows": [row._asdict() for row in rows],
    }
    common.write(options.out, "gpu", result, page(result))


def _gpu_name(backend: str) -> str | None:
    """Returns the name of the first GPU, or None where there is none."""
    if backend == "jax":
        import jax

        device = jax.devices()[0]
        return None if device.platform == "cpu" else device.device_kind

    import tensorflow as tf

    for device in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(device)
        return details.get("device_name", device.name)
    return None


def _peak(name: str, batch: int) -> float | None:
    """Returns megabytes on the GPU, told by a process of its own."""
    target = "benchmarks.gpu:peak_of_training"
    try:
        peak = call_elsewhere(target, name=name, batch=batch)
    except RuntimeError as error:
        print(f"{name}, memory: {error}")
        return None
    return peak and peak / 1e6


def peak_of_training(name: str, batch: int) -> int | None:
    """Returns the most bytes on the GPU while this process trains two steps.

    It must have done nothing before.
    """
    import keras

    from benchmarks import models

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
    about = common.origin(described, result["settings"])
    sections = [
        "# Whole steps on one GPU",
        f"{where} {described['backend']}. {about}",
        _INTRODUCTION,
        common.table_of_rows({"gpu": result}),
    ]
    return "\n\n".join(sections) + "\n"


if __name__ == "__main__":
    sys.exit(common.main(make_parser(), run, _check))

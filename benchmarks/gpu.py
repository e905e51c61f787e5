"""Measures whole steps on one GPU, beside their floor.

KERAS_BACKEND=jax python -m benchmarks.gpu

writes results/gpu.json and, from it alone, results/gpu.md. Without a GPU it
runs on the CPU and says so. It needs no TensorFlow where the backend is JAX.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    # One GPU is for this process and those that measure memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

from benchmarks import command
from benchmarks.measure import Settings
from cli import Parser, at_least_one
from training.models import network

# What holds where flags do not say otherwise, without and with `--quick`.
_DEFAULTS = {
    "models": [
        "dr_capsnet",
        "gamma_capsnet",
        "deepcaps",
        "em_capsnet",
        "efficient_capsnet",
        "constellation_capsnet",
    ],
    "batch": 128,
    "rounds": Settings().rounds,
}
_QUICK = {"models": ["dr_capsnet"], "batch": 2, "rounds": 2}


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = command.make_parser("gpu", __doc__)
    add = parser.add_argument
    for name, kind, text in (
        ("models", lambda names: names.split(","), "networks"),
        ("batch", at_least_one, "images in a step"),
        ("rounds", at_least_one, "turns of each candidate at most"),
    ):
        default, quick = _DEFAULTS[name], _QUICK[name]
        text = f"{text} (default: {default}, with --quick {quick})"
        add(f"--{name}", type=kind, help=text)
    add("--quick", action="store_true", help="small sizes, to see that it runs")
    return parser


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """Returns what the flags say, and the defaults for what they do not."""
    defaults = _QUICK if options.quick else _DEFAULTS
    chosen = {k: getattr(options, k) or v for k, v in defaults.items()}
    return {**chosen, "quick": options.quick}


def _check(options: argparse.Namespace) -> None:
    for name in settings_of(options)["models"]:
        network(name)  # a wrong name shall not cost the others' time


def run(options: argparse.Namespace) -> None:
    """Measures and writes the two files."""
    from benchmarks import gpu_job

    gpu_job.run(settings_of(options), options.out)


if __name__ == "__main__":
    sys.exit(command.main(make_parser(), run, _check))

"""Measures time and memory of tfcaps beside other ways to compute the same.

python -m benchmarks.run
KERAS_BACKEND=jax python -m benchmarks.run --only gpu

writes results/benchmarks.json and, from it alone, the table that ends
results/benchmarks.md. With --only, the other parts stay as an earlier run left
them.
"""

import argparse
import importlib
import json
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

from benchmarks.measure import (
    Settings,
    machine,
    main,
    origin,
    results_parser,
    table_of_rows,
    write,
)
from cli import Parser, UserError, at_least_one

# Modules with a function `measure`.
PARTS = ("formulations", "models", "gpu")
_QUICK_ROUNDS = 2


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = results_parser("run", __doc__)
    add = parser.add_argument
    add(
        "--only",
        nargs="+",
        choices=PARTS,
        default=PARTS[:-1],
        help="these parts (default: all but gpu)",
    )
    add(
        "--rounds",
        type=at_least_one,
        help="turns of each candidate at most (default: "
        f"{Settings().rounds}, with --quick {_QUICK_ROUNDS})",
    )
    add("--quick", action="store_true", help="small sizes, to see that it runs")
    return parser


def run(options: argparse.Namespace) -> None:
    """Runs the parts and writes the files after each of them."""
    import keras

    backend = keras.backend.backend()
    wanted = ("tensorflow", *(["jax"] if options.only == ["gpu"] else []))
    if backend not in wanted:
        raise UserError(
            f"the benchmarks need the backend {' or '.join(wanted)}, not "
            f"{backend!r}; set KERAS_BACKEND."
        )
    known = options.out / "benchmarks.json"
    parts = json.loads(known.read_text("utf-8")) if known.exists() else {}
    rounds = _QUICK_ROUNDS if options.quick else Settings().rounds
    settings = Settings(options.rounds or rounds, options.quick)
    for name in options.only:
        rows = importlib.import_module(f"benchmarks.{name}").measure(settings)
        parts[name] = {
            "machine": machine(),
            "settings": settings._asdict(),
            "rows": [row._asdict() for row in rows],
        }
        write(options.out, "benchmarks", parts, page(parts))


def page(parts: Mapping[str, Any]) -> str:
    """Returns one table of all parts, and their origins."""
    origins = [
        f"- {name}: {origin(part['machine'], part['settings'])}"
        for name, part in parts.items()
    ]
    rows = table_of_rows({name: part["rows"] for name, part in parts.items()})
    return "\n\n".join([rows, "\n".join(origins)]) + "\n"


if __name__ == "__main__":
    sys.exit(main(make_parser(), run))

"""Measures time and memory of tfcaps beside other ways to compute the same.

python -m benchmarks.run
KERAS_BACKEND=jax python -m benchmarks.run --only gpu
python -m benchmarks.run --before ../checkout

writes results/benchmarks.json and, from it alone, the table that ends
results/benchmarks.md. With --only, the other parts stay as an earlier run left
them. With --before, networks by the code of another commit run beside those of
this one, and nothing else.
"""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    # One GPU is for this process and those that measure memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

from benchmarks.measure import Row, Settings, machine, origin, table_of_rows
from cli import Parser, UserError, at_least_one, run_loading

ROOT = Path(__file__).resolve().parents[1]
# By module and function.
PARTS = {
    "formulations": "formulations:measure",
    "models": "models:measure",
    "serving": "serving:measure",
    "gpu": "models:measure_on_gpu",
}
_QUICK_ROUNDS = 2


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="benchmarks/run.py", description=__doc__)
    add = parser.add_argument
    about = "where the files are (default: results/)"
    add("--out", type=Path, default=ROOT / "results", help=about)
    about = "these parts (default: all but gpu)"
    add("--only", nargs="+", choices=PARTS, default=[*PARTS][:-1], help=about)
    about = "turns of each candidate at most (default: %(default)s)"
    add("--rounds", type=at_least_one, default=Settings().rounds, help=about)
    about = "time the networks of another checkout of this repository too"
    add("--before", type=Path, metavar="CHECKOUT", help=about)
    about = f"small sizes and {_QUICK_ROUNDS} rounds, to see that it runs"
    add("--quick", action="store_true", help=about)
    return parser


def run(options: argparse.Namespace) -> None:
    """Runs the parts and writes the files after each of them.

    The words above the table of the page stay; they are written by hand.
    """
    import keras

    backend = keras.backend.backend()
    backends = ("tensorflow", *(["jax"] if options.only == ["gpu"] else []))
    if backend not in backends:
        raise UserError(
            f"the benchmarks need the backend {' or '.join(backends)}, not "
            f"{backend!r}; set KERAS_BACKEND."
        )
    if options.before and not (options.before / "benchmarks").is_dir():
        raise UserError(
            f"{options.before} is no checkout of this repository; make one by "
            "`git worktree add ../checkout COMMIT`."
        )
    data, text = (options.out / f"benchmarks.{end}" for end in ("json", "md"))
    parts = json.loads(data.read_text("utf-8")) if data.exists() else {}
    rounds = _QUICK_ROUNDS if options.quick else options.rounds
    settings = Settings(rounds, options.quick)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in ["before"] if options.before else options.only:
        parts[name] = {
            "machine": machine(),
            "settings": settings._asdict(),
            "rows": [row._asdict() for row in _rows(name, settings, options)],
        }
        words = text.read_text("utf-8") if text.exists() else "# Benchmarks\n"
        words = words.partition("\n|")[0]
        data.write_text(json.dumps(parts, indent=1) + "\n")
        text.write_text(f"{words}\n{page(parts)}", "utf-8")
        print(f"written: {text}", flush=True)


def _rows(
    name: str, settings: Settings, options: argparse.Namespace
) -> list[Row]:
    """Returns what a part measures."""
    if name == "before":
        from benchmarks import before

        return before.measure(settings, options.before.resolve(), ROOT)
    path, _, function = PARTS[name].partition(":")
    module = importlib.import_module(f"benchmarks.{path}")
    return getattr(module, function)(settings)


def page(parts: Mapping[str, Any]) -> str:
    """Returns one table of all parts, and their origins."""
    origins = [
        f"- {name}: {origin(part['machine'], part['settings'])}"
        for name, part in parts.items()
    ]
    rows = table_of_rows({name: part["rows"] for name, part in parts.items()})
    return "\n\n".join([rows, "\n".join(origins)]) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_loading(make_parser(), run, argv=argv)


if __name__ == "__main__":
    sys.exit(main())
